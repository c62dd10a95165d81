"""Folders of images: SPLIT/VALUE/NAME, as torchvision's ImageFolder and Hugging Face's imagefolder read them.

The value is that of a column, `category` unless another is named. SPLIT/metadata.csv has a line for each image.
"""

import csv
import io
import shutil
import tempfile
from typing import Any

from framekiln.contract.errors import check_known
from framekiln.export.annotation import ExportedImage
from framekiln.export.formats.base import Format
from framekiln.export.request import WHOLE
from framekiln.media.media_ids import as_folder, escape

_OWN = ("media_id", "frame_index", "time_s", "width", "height")
_OF_FILE = ("media_type", "media_id")
"""Columns of decoding that name a folder too."""
_NO_VALUE = "none"
"""The folder of images without a value."""


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
        self._tables: dict[str, io.TextIOWrapper] = {}

    def folder_of(self, image: ExportedImage) -> str:
        return "/".join([*_list_split(image.split), *self._list_value(image)])

    def _list_value(self, image: ExportedImage) -> list[str]:
        value = getattr(image, self._column) if self._column in _OF_FILE else image.values.get(self._column)
        name = _NO_VALUE if value is None else escape(str(value)).replace("/", "%2F").replace(".", "%2E")
        return [as_folder(name)] if self._column else []

    def add(self, image: ExportedImage) -> None:
        values = [name for name in self.columns.names if name not in _OWN]
        if image.split not in self._tables:
            file = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
            self._tables[image.split] = io.TextIOWrapper(file, "utf-8", newline="")
            csv.writer(self._tables[image.split]).writerow(["file_name", *_OWN, *values])
        name = "/".join([*self._list_value(image), image.name])
        own = [getattr(image, column) for column in _OWN]
        line = [name, *own, *(image.values.get(column) for column in values)]
        csv.writer(self._tables[image.split]).writerow(line)

    def end(self) -> None:
        for split, table in self._tables.items():
            path = "/".join([*_list_split(split), "metadata.csv"])
            file: Any = table.detach()
            with file, self.destination.writing(path) as stream:
                file.seek(0)
                shutil.copyfileobj(file, stream, 1 << 20)


def _list_split(split: str) -> list[str]:
    return [] if split == WHOLE else [split]
