"""The interface of all formats: each gets the images in order, batch by batch, and ends once."""

import json
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from typing import IO, Any, ClassVar

import pyarrow as pa

from framekiln.export.annotation import Annotation, Categories, ExportedImage, decode_mask, file_name
from framekiln.export.outlines import Ring, trace
from framekiln.export.pictures import PictureReader
from framekiln.export.request import ExportRequest
from framekiln.output.object_store import Store


class Format(ABC):
    """A writer of one format into one destination."""

    kinds: ClassVar[frozenset[str]]
    """Kinds of `framekiln.export.request.KINDS` that the format can hold."""
    default: ClassVar[frozenset[str]]
    """Kinds exported without --include, if the output has them; no biometrics."""
    needs_annotations: ClassVar[bool] = False
    """Whether an export needs at least one of these."""
    holds_pictures: ClassVar[bool] = False
    """Whether its files contain the pictures; see `framekiln.export.formats.record`."""
    holds_rows: ClassVar[bool] = False
    """Whether its files contain all numbers, texts and flags of a frame's row."""

    def __init__(self, destination: Store, request: ExportRequest) -> None:
        """Bind to a destination. Nothing is written yet; `request.include` holds the exported kinds.

        Raises ConfigError: the format cannot do what was requested.
        """
        self.destination = destination
        self.request = request
        self.notes: list[str] = []  # sentences about things that the format could not hold
        self.categories = Categories()
        self.splits: dict[str, None] = {}  # splits of the images so far
        self.holes = 0  # number of outlined masks with holes

    def bind(self, pictures: PictureReader, columns: pa.Schema) -> None:
        """Set the source of pictures, and the types of rows' values and embeddings. Nothing is written yet."""
        self.pictures, self.columns = pictures, columns

    def folder_of(self, image: ExportedImage) -> str:
        """Return the folder of an image's file; empty for the destination itself."""
        return f"images/{image.split}"

    def path_of(self, image: ExportedImage, name: str) -> str:
        """Return the path in the destination of an image's file of this name."""
        return "/".join(filter(None, [self.folder_of(image), name]))

    def name_of(self, image: ExportedImage, suffix: str = "") -> str:
        """Return the name of an image's file in its folder; see `framekiln.export.annotation.file_name`."""
        return file_name(image, suffix)

    def choose(self, images: Sequence[ExportedImage]) -> list[ExportedImage]:
        """Return the images that the format can hold, with the annotations that it writes."""
        return list(images)

    def category_of(self, image: ExportedImage) -> Any:
        """Return the category of a whole image; None if it has none, or categories are not exported."""
        return image.values.get("category") if "categories" in (self.request.include or ()) else None

    def outline(self, item: Annotation, image: ExportedImage) -> list[Ring]:
        """Return the outlines of the parts of a mask, without its holes."""
        outlines = trace(decode_mask(item.mask or {}, image.height, image.width))
        self.holes += bool(outlines.holes)
        return outlines.parts

    def write(self, images: Sequence[ExportedImage]) -> None:
        """Take images whose files, if any, are in the destination. All images of a file come one after another."""
        for image in images:
            self.splits[image.split] = None
            self.add(image)

    def add(self, image: ExportedImage) -> None:
        """Take one image; a format that takes several at once overrides `write`."""
        raise NotImplementedError

    @abstractmethod
    def end(self) -> None:
        """Write the parts that need all images, and fill `notes`."""


class Spool:
    """Lists of texts by name, with a separator between them."""

    def __init__(self, separator: str = ",\n") -> None:
        self._separator = separator.encode()
        self._files: dict[str, IO[bytes]] = defaultdict(tempfile.TemporaryFile)

    def add(self, name: str, text: str) -> None:
        file = self._files[name]
        file.write((self._separator if file.tell() else b"") + text.encode())

    def add_json(self, name: str, record: Any) -> None:
        """Append a record as JSON; times and the like become texts."""
        self.add(name, json.dumps(record, default=str))

    def copy(self, name: str, stream: pa.NativeFile) -> None:
        """Write a list into a stream, and forget it."""
        with self._files[name] as file:
            file.seek(0)
            shutil.copyfileobj(file, stream, 1 << 20)
        del self._files[name]
