"""Folders of images: SPLIT/VALUE/NAME, as torchvision's ImageFolder and Hugging Face's imagefolder read them.

The value is that of a column, `category` unless another is named. SPLIT/metadata.parquet has a row for each image: of
a text file Hugging Face guesses the types of columns, and refuses splits in which it guesses others.
"""

import shutil
import tempfile
from collections.abc import Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from framekiln.contract.errors import check_known
from framekiln.export.annotation import ExportedImage
from framekiln.export.formats.base import Format
from framekiln.export.formats.record import Record, make_record, make_schema
from framekiln.export.request import WHOLE
from framekiln.media.media_ids import as_folder, escape

_OF_FILE = ("media_type", "media_id")
"""Columns of decoding that name a folder too."""
_NO_VALUE = "none"
"""The folder of images without a value."""
_AT_ONCE = 1 << 20  # bytes


class Writer(Format):
    """Lets pictures be put into folders, and writes a table for each split."""

    kinds = frozenset({"categories"})
    default = kinds

    def bind(self, *given: Any) -> None:
        """See `Format`. Raises ConfigError: the rows lack the column that is asked for."""
        super().bind(*given)
        column, names = self.request.folders, self.columns.names
        if column is not None:
            problem = f"--folders {column}: the frames have no such column."
            check_known(column, [*names, *_OF_FILE], problem, code="FK-EXPORT-COLUMN")
        self._column = column or ("category" if "category" in names else "")
        own = [item for item in make_schema(self.columns) if item.name != "objects"]
        self._schema = pa.schema([("file_name", pa.string()), *own])
        self._tables: dict[str, tuple[IO[bytes], pq.ParquetWriter]] = {}

    def folder_of(self, image: ExportedImage) -> str:
        """See `Format`."""
        return "/".join([*_list_split(image.split), *self._list_value(image)])

    def _list_value(self, image: ExportedImage) -> list[str]:
        value = getattr(image, self._column) if self._column in _OF_FILE else image.values.get(self._column)
        name = _NO_VALUE if value is None else escape(str(value)).replace("/", "%2F").replace(".", "%2E")
        return [as_folder(name)] if self._column else []

    def write(self, images: Sequence[ExportedImage]) -> None:
        """See `Format`."""
        for split in dict.fromkeys(image.split for image in images):
            if split not in self._tables:
                file = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
                self._tables[split] = file, pq.ParquetWriter(file, self._schema)
            rows = [self._describe(image) for image in images if image.split == split]
            self._tables[split][1].write_table(pa.Table.from_pylist(rows, self._schema))

    def _describe(self, image: ExportedImage) -> Record:
        return make_record(image) | {"file_name": "/".join([*self._list_value(image), image.name])}

    def end(self) -> None:
        """See `Format`."""
        for split, (file, table) in self._tables.items():
            table.close()
            with file, self.destination.writing("/".join([*_list_split(split), "metadata.parquet"])) as stream:
                file.seek(0)
                shutil.copyfileobj(file, stream, _AT_ONCE)


def _list_split(split: str) -> list[str]:
    return [] if split == WHOLE else [split]
