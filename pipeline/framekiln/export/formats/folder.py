"""Folders of images: SPLIT/VALUE/NAME, as torchvision's ImageFolder and Hugging Face's imagefolder read them.

The value is a column's, by default `category`. For faces that are cut out it is the person's name or number, if
exported. SPLIT/metadata.parquet has a row for each image. In a text file Hugging Face would guess the types of columns,
and refuse splits where its guesses differ.
"""

import shutil
import tempfile
from collections.abc import Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from framekiln.contract.errors import ConfigError, check_known
from framekiln.export.annotation import ExportedImage
from framekiln.export.formats.base import Format
from framekiln.export.formats.record import PictureRecord, make_record, make_schema
from framekiln.export.pictures import CROP
from framekiln.export.request import WHOLE
from framekiln.media.media_ids import as_folder, escape

_OF_FILE = ("media_type", "media_id")
"""Columns of decoding that may name a folder too."""
_PERSON, _NAME = "identity", "person"
"""The columns with the number and the name of the person on a cropped face."""
_NO_VALUE = "none"
"""The folder of images without a value."""
_AT_ONCE = 1 << 20  # bytes


class Writer(Format):
    """Has pictures put into folders, and writes a table for each split."""

    kinds = frozenset({"categories", "faces", "identities"})
    default = frozenset({"categories"})
    holds_rows = True

    def __init__(self, *given: Any) -> None:
        """See `Format`. Raises ConfigError: faces are requested without being cropped."""
        super().__init__(*given)
        kinds = self.request.include or frozenset()
        if kinds - self.default and self.request.images != CROP:
            message = f"folder holds faces and identities only with --images {CROP}; add it, or leave them out."
            raise ConfigError(message, code="FK-EXPORT-KIND")
        self._people = [_PERSON] if "identities" in kinds else []

    def bind(self, *given: Any) -> None:
        """See `Format`. Raises ConfigError: the rows lack the requested column."""
        super().bind(*given)
        column, names = self.request.folders, self.columns.names
        if column is not None:
            problem = f"--folders {column}: the frames have no such column."
            check_known(column, [*names, *_OF_FILE, *self._people], problem, code="FK-EXPORT-COLUMN")
        self._column = column or (self._people or ["category" if "category" in names else ""])[0]
        own = [item for item in make_schema(self.columns) if item.name != "objects"]
        people = [(_PERSON, pa.int64()), (_NAME, pa.string())] if self._people else []
        self._schema = pa.schema([("file_name", pa.string()), *people, *own])
        self._tables: dict[str, tuple[IO[bytes], pq.ParquetWriter]] = {}

    def folder_of(self, image: ExportedImage) -> str:
        return "/".join([*_list_split(image.split), *self._list_value(image)])

    def _list_value(self, image: ExportedImage) -> list[str]:
        if self._column in self._people:
            value = image.annotations[0].attributes.get("person", image.annotations[0].identity)
        else:
            value = getattr(image, self._column) if self._column in _OF_FILE else image.values.get(self._column)
        name = _NO_VALUE if value is None else escape(str(value)).replace("/", "%2F").replace(".", "%2E")
        if isinstance(value, str) and self._column in self._people and (value.isdigit() or value == _NO_VALUE):
            name = f"%{ord(name[0]):02X}{name[1:]}"  # whoever is named 7 is not the unnamed person 7
        return [as_folder(name)] if self._column else []

    def write(self, images: Sequence[ExportedImage]) -> None:
        for split in dict.fromkeys(image.split for image in images):
            if split not in self._tables:
                file = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
                self._tables[split] = file, pq.ParquetWriter(file, self._schema)
            rows = [self._describe(image) for image in images if image.split == split]
            self._tables[split][1].write_table(pa.Table.from_pylist(rows, self._schema))

    def _describe(self, image: ExportedImage) -> PictureRecord:
        face = image.annotations[0] if self._people else None
        person = {_PERSON: face.identity, _NAME: face.attributes.get("person")} if face else {}
        return make_record(image) | person | {"file_name": "/".join([*self._list_value(image), image.name])}

    def end(self) -> None:
        for split, (file, table) in self._tables.items():
            table.close()
            with file, self.destination.writing("/".join([*_list_split(split), "metadata.parquet"])) as stream:
                file.seek(0)
                shutil.copyfileobj(file, stream, _AT_ONCE)


def _list_split(split: str) -> list[str]:
    return [] if split == WHOLE else [split]
