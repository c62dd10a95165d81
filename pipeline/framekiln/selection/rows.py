"""The rows of an output as DuckDB reads them: `frames/` with what tables say of each row.

Beside the columns of `frames/` a row has `shot` (of the shot that it lies in) and `duplicate` (whether `duplicates`
keeps another copy of it), where a request asks for them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from framekiln.contract.errors import ConfigError
from framekiln.contract.output_names import FRAMES
from framekiln.output.object_store import Store
from framekiln.planning.expression import BESIDE, connect, explain

T = TypeVar("T")

_JOINS = {
    "shot": "LEFT JOIN (SELECT media_id AS shot_of, shot, first_frame, last_frame FROM shots) "
    "ON media_id = shot_of AND frame_index BETWEEN first_frame AND last_frame",
    "duplicate": "LEFT JOIN (SELECT media_id AS copy_id, frame_index AS copy_index, NOT keep AS is_copy, "
    '"group" AS copy_group FROM duplicates) ON media_id = copy_id AND frame_index = copy_index',
}
_VALUES = {"shot": "shot", "duplicate": "coalesce(is_copy, false) AS duplicate, copy_group"}


class Rows:
    """The tables of one output, for SQL expressions."""

    def __init__(self, store: Store, tables: Mapping[str, pa.Table] | None = None) -> None:
        """Open the tables of a store, or other `tables` in their place."""
        self._store, self._tables = store, tables
        self.connection = connect()
        self.columns = self.register(FRAMES)

    def register(self, table: str, *, for_name: str = "") -> list[str]:
        """Let expressions read a table, and return its columns. `for_name`: what the user asked for.

        Raises ConfigError: the output has no such table.
        """
        if for_name and self._tables is None and table not in self._store.folders():
            message = (
                f"{for_name!r} comes from the table {table!r}, which {self._store.root!r} lacks; run its step first."
            )
            raise ConfigError(message, code="FK-SELECTION-TABLE")
        data = self._store.dataset(table, pa.schema([])) if self._tables is None else self._tables[table]
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
            raise explain(error, option, repr(self._store.root), [*self.columns, *BESIDE]) from error
