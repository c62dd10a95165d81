"""The rows of an output as DuckDB reads them: `frames/` with what tables say of each row.

Beside the columns of `frames/` a row has `shot` (of the shot that it lies in) and `duplicate` (whether `duplicates`
keeps another copy of it), where a request asks for them.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from framekiln.contract.errors import ConfigError, did_you_mean
from framekiln.contract.output_names import FRAMES
from framekiln.output.object_store import Store

T = TypeVar("T")

BESIDE = {"shot": "shots", "duplicate": "duplicates"}
"""Columns of a row that are none of `frames/`, and the table that says them."""
_JOINS = {
    "shot": "LEFT JOIN (SELECT media_id AS shot_of, shot, first_frame, last_frame FROM shots) "
    "ON media_id = shot_of AND frame_index BETWEEN first_frame AND last_frame",
    "duplicate": "LEFT JOIN (SELECT media_id AS copy_id, frame_index AS copy_index, NOT keep AS is_copy, "
    '"group" AS copy_group FROM duplicates) ON media_id = copy_id AND frame_index = copy_index',
}
_VALUES = {"shot": "shot", "duplicate": "coalesce(is_copy, false) AS duplicate, copy_group"}
# An expression of a user reads the registered tables and nothing else: no file, no network, no extension.
_LIMITS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}
_MISSING = re.compile(r'column "?([^"\s]+)"? not found', re.IGNORECASE)


class Rows:
    """The tables of one output, for SQL expressions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.connection = duckdb.connect(config=_LIMITS)
        self.columns = self.register(FRAMES)

    def register(self, table: str, *, for_name: str = "") -> list[str]:
        """Let expressions read a table, and return its columns. `for_name`: what the user asked for.

        Raises ConfigError: the output has no such table.
        """
        if for_name and table not in self._store.folders():
            message = (
                f"{for_name!r} comes from the table {table!r}, which {self._store.root!r} lacks; run its step first."
            )
            raise ConfigError(message, code="FK-SELECTION-TABLE")
        data = self._store.dataset(table, pa.schema([]))
        self.connection.register(table, data)
        return list(data.schema.names)

    def join(self, expressions: Sequence[str]) -> Any:
        """Return all rows as a relation: the columns of `frames/`, and those of `BESIDE` that an expression names."""
        names = [name for name in BESIDE if any(re.search(rf"\b{name}\b", text) for text in expressions)]
        for name in names:
            self.register(BESIDE[name], for_name=name)
        columns = ", ".join(["frames.*", *(_VALUES[name] for name in names)])
        joins = " ".join(_JOINS[name] for name in names)
        return self.connection.sql(f"SELECT {columns} FROM {FRAMES} AS frames {joins}")  # noqa: S608 - our own names

    def check(self, option: str, ask: Callable[[], T]) -> T:
        """Return what `ask` returns, with DuckDB's complaints about an expression as one sentence.

        Raises ConfigError: the expression is wrong, or names a column that is missing.
        """
        try:
            return ask()
        except duckdb.Error as error:
            text = str(error).partition("\n")[0].strip()
            if missing := _MISSING.search(text):
                near = did_you_mean(missing[1], [*self.columns, *BESIDE])
                message = f"{option}: {self._store.root!r} has no column {missing[1]!r}.{near}"
                raise ConfigError(message, code="FK-SELECTION-COLUMN") from error
            raise ConfigError(f"{option}: {text}.", code="FK-SELECTION-SQL") from error
