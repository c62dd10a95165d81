"""One record of a row in JSON or Arrow, and shards of rows with their pictures.

A shard is whole or absent, so an export can continue.

Boxes are COCO's: left, top, width, height in px of the exported picture. Masks are COCO's compressed run lengths at
their own size. Keypoints are x, y, visibility in sequence; `categories.json` beside the data names them.
"""

import json
import math
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, ClassVar

import pyarrow as pa

from framekiln.contract.row_errors import Failure
from framekiln.export.annotation import Annotation, ExportedImage
from framekiln.export.formats.base import Format
from framekiln.export.formats.coco import describe, describe_categories
from framekiln.export.pictures import Pictured
from framekiln.export.request import BIOMETRIC, KINDS


class Sharded(Format):
    """A writer of shards. A shard's rows follow from their order, so finished shards are skipped."""

    kinds = frozenset(KINDS)
    default = frozenset(KINDS) - BIOMETRIC
    holds_pictures = holds_rows = True
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


PictureRecord = dict[str, Any]

OBJECT = pa.struct(
    [
        ("kind", pa.string()),
        ("source", pa.string()),  # the column or table that it comes from
        ("category", pa.string()),
        ("bbox", pa.list_(pa.float64())),
        ("area", pa.float64()),
        ("score", pa.float64()),
        ("segmentation", pa.struct([("size", pa.list_(pa.int32())), ("counts", pa.string())])),
        ("keypoints", pa.list_(pa.float64())),
        ("track_table", pa.string()),  # the table of the track, and its number there within the file
        ("track_id", pa.int64()),
        ("identity", pa.int64()),
        ("attributes", pa.string()),  # JSON
        ("embedding", pa.list_(pa.float32())),
    ]
)
OWN = pa.schema(
    [
        ("media_id", pa.string()),
        ("frame_index", pa.int32()),
        ("media_type", pa.string()),
        ("time_s", pa.float64()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("objects", pa.list_(OBJECT)),
    ]
)
"""Columns of every record; the row's columns and its embeddings follow."""


def make_record(image: ExportedImage) -> PictureRecord:
    """Return a row's record, without its embeddings."""
    objects = [_make_object(item, image) for item in image.annotations]
    own = {name: getattr(image, name) for name in OWN.names if name != "objects"}
    return own | {"objects": objects} | {free_name(name): value for name, value in image.values.items()}


def _make_object(item: Annotation, image: ExportedImage) -> PictureRecord:
    table, number = item.track or (None, None)
    return {
        "kind": item.kind,
        "source": item.source,
        "category": item.category.name,
        "track_table": table,
        "track_id": number,
        "embedding": None if item.embedding is None else list(map(float, item.embedding)),
        **describe(item, image),
    }


def free_name(name: str) -> str:
    """Return the name of a row's column in records, which have own columns too."""
    return f"{name}_" if name in {*OWN.names, "image", "split"} else name


def make_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of records. `columns`: the rows' values, and embeddings, which become fp32."""
    return pa.schema([*OWN, *(pa.field(free_name(item.name), _make_single(item.type)) for item in columns)])


def _make_single(dtype: pa.DataType) -> pa.DataType:
    """Return an embedding's type in fp32, which every library reads, and any other type unchanged."""
    return pa.list_(pa.float32(), dtype.list_size) if pa.types.is_fixed_size_list(dtype) else dtype


def for_arrow(record: PictureRecord, image: ExportedImage) -> PictureRecord:
    """Return a record for `make_schema`: embeddings beside the values, and attributes as JSON."""
    objects = [item | {"attributes": to_json(item.get("attributes", {}))} for item in record["objects"]]
    vectors = {free_name(name): list(map(float, vector)) for name, vector in image.embeddings.items()}
    return record | {"objects": objects} | vectors


def to_json(value: Any) -> str:
    """Return a value as JSON with sorted keys; numbers that are not finite are null, times are texts of ISO 8601."""
    return json.dumps(_make_plain(value), sort_keys=True, ensure_ascii=False, allow_nan=False)


def _make_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _make_plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_make_plain(item) for item in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if hasattr(value, "item"):  # a number of numpy
        return _make_plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
