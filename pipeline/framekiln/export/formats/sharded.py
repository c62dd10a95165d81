"""Formats with many rows and their pictures in a file: each shard is whole or absent, so an export can continue."""

import json
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from framekiln.contract.row_errors import Failure
from framekiln.export.annotation import ExportedImage
from framekiln.export.formats.base import Format
from framekiln.export.formats.coco import describe_categories
from framekiln.export.pictures import Pictured
from framekiln.export.request import BIOMETRIC, KINDS


class Sharded(Format):
    """A writer of shards. A shard's rows follow from their order, so finished shards are skipped."""

    kinds = frozenset(KINDS)
    default = frozenset(KINDS) - BIOMETRIC
    holds_pictures = True
    ending: ClassVar[str]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._waiting: dict[str, list[ExportedImage]] = defaultdict(list)  # by split
        self._shards = Counter[str]()
        self.failures: list[Failure] = []

    def add(self, image: ExportedImage) -> None:
        self._waiting[image.split].append(image)
        for item in image.annotations:
            self.categories.number(item.category)
        if len(self._waiting[image.split]) == self.request.shard_rows:
            self._flush(image.split)

    def end(self) -> None:
        for split in sorted(self._waiting):
            if self._waiting[split]:
                self._flush(split)
        categories = json.dumps(describe_categories(self.categories), indent=1, ensure_ascii=False)
        self.destination.write("categories.json", f"{categories}\n".encode())
        if self.failures:
            first = self.failures[0]
            self.notes.append(
                f"{len(self.failures):,} frames were left out: they are not readable now, such as {first.media_id} "
                f"({first.message})."
            )

    def _flush(self, split: str) -> None:
        number, images = self._shards[split], self._waiting.pop(split)
        if not self.has_shard(split, number):
            self.write_shard(split, number, self._add_pictures(images))
        self._shards[split] += 1

    def has_shard(self, split: str, number: int) -> bool:
        return self.destination.exists(self.name_shard(split, number))

    @abstractmethod
    def name_shard(self, split: str, number: int) -> str:
        """Return the path of a shard in the destination."""

    @abstractmethod
    def write_shard(self, split: str, number: int, rows: Iterator[Pictured]) -> None:
        """Write a shard; annotations are in px of the pictures."""

    def _add_pictures(self, images: Sequence[ExportedImage]) -> Iterator[Pictured]:
        """Yield images with their pictures; unreadable ones are counted."""
        for found in self.pictures.read(images):
            if isinstance(found, Failure):
                self.failures.append(found)
            else:
                yield from found
