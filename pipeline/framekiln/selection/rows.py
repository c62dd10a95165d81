"""The rows of an output for DuckDB: `frames/` with columns from other tables.

On request a row has further columns. `shot`: the shot that holds it. `duplicate`: whether `duplicates` keeps another
copy of the photo, or of that part of the video. `scene`: the first photo of the same scene; for other rows their file.
`identities`: the list of people on it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from framekiln.contract.errors import ConfigError
from framekiln.contract.output_names import FRAMES
from framekiln.output.object_store import Store
from framekiln.planning.expression import BESIDE, Expression, connect, explain, find_names, widen, without_halves
from framekiln.planning.stage_building import find_fix

T = TypeVar("T")

_JOINS = {
    "shot": "LEFT JOIN (SELECT media_id AS shot_of, shot, first_frame, last_frame FROM shots) "
    "ON media_id = shot_of AND frame_index BETWEEN first_frame AND last_frame",
    "duplicate": "LEFT JOIN (SELECT media_id AS copy_id, frame_index AS copy_index, NOT keep AS is_copy, "
    '"group" AS copy_group FROM duplicates) ON media_id = copy_id AND frame_index = copy_index',
    "scene": "LEFT JOIN (SELECT media_id AS scene_of, scene AS first_photo FROM scenes) ON media_id = scene_of",
    "identities": "LEFT JOIN (SELECT media_id AS met_id, frame_index AS met_index, list(DISTINCT identity ORDER BY "
    "identity) AS met FROM identities WHERE identity IS NOT NULL GROUP BY ALL) "
    "ON media_id = met_id AND frame_index = met_index",
}
_IN_PART = "media_id = lesser AND time_s BETWEEN lesser_start_s AND lesser_end_s"
_VALUES = {
    "shot": "shot",
    "duplicate": f"coalesce(is_copy, EXISTS (FROM parts WHERE {_IN_PART})) AS duplicate, copy_group",
    "scene": "coalesce(first_photo, media_id) AS scene",
    "identities": "coalesce(met, []) AS identities",
}
# A shared part of two videos: its place in the one left out, and in the other.
_PARTS = """
    SELECT if(keep, other_media_id, media_id) AS lesser, if(keep, media_id, other_media_id) AS better,
        if(keep, other_start_s, start_s) AS lesser_start_s, if(keep, start_s, other_start_s) AS better_start_s,
        if(keep, other_end_s, end_s) AS lesser_end_s, if(keep, end_s, other_end_s) AS better_end_s
    FROM film_copies
"""


class Rows:
    """The tables of one output, for SQL expressions."""

    def __init__(self, store: Store, tables: Mapping[str, pa.Table] | None = None) -> None:
        """Open the tables of a store, or `tables` in their place."""
        self._store, self._tables = store, tables
        self.connection = connect()
        self.tables: dict[str, list[str]] = {}  # columns of the tables read so far
        self.columns = self.register(FRAMES)
        self._queried: frozenset[str] = frozenset()  # tables that subqueries read

    def register(self, table: str, *, for_name: str = "") -> list[str]:
        """Let expressions read a table, and return its columns. `for_name`: the name that the user gave.

        Raises ConfigError: the output has no such table.
        """
        if for_name and self._tables is None and table not in self._store.folders():
            message = f"{for_name!r} comes from the table {table!r}, which {self._store.root!r} lacks."
            raise ConfigError(f"{message}{find_fix(f'{table}/')}", code="FK-SELECTION-TABLE")
        data = (
            self._store.dataset(table, pa.schema([]), without_halves)
            if self._tables is None
            else widen(self._tables[table])
        )
        if not data.schema.names:  # DuckDB rejects it
            message = f"There is no table {table!r} in {self._store.root!r} yet; finish the run there."
            raise ConfigError(message, code="FK-SELECTION-TABLE")
        self.connection.register(table, data)
        self.tables[table] = list(data.schema.names)
        return self.tables[table]

    def register_all(self, expression: Expression) -> None:
        """Let an expression's subqueries read their tables. Raises ConfigError: the output lacks one."""
        self._queried |= expression.queried
        for table in sorted(expression.tables - self.tables.keys()):
            if self._tables is not None or table in self._store.folders() or find_fix(f"{table}/"):
                self.register(table, for_name=table)  # else DuckDB says that there is none

    def join(self, expressions: Sequence[str]) -> Any:
        """Return all rows as a relation: the columns of `frames/`, and the further ones that an expression names."""
        read = frozenset[str]().union(*map(find_names, expressions))
        names = [name for name in BESIDE if name in read]
        for name in names:
            self.register(BESIDE[name], for_name=name)
        if "duplicate" in names:
            self.register("film_copies", for_name="duplicate")
            self.connection.sql(_PARTS).create_view("parts")
        columns = ", ".join(["frames.*", *(_VALUES[name] for name in names)])
        joins = " ".join(_JOINS[name] for name in names)
        return self.connection.sql(f"SELECT {columns} FROM {FRAMES} AS frames {joins}")  # noqa: S608 - our own names

    def leave_copies(self, relation: Any) -> Any:
        """Return one row of each group of copies, and the frames of one video for each shared part.

        The kept copy is returned if present. Frames that equal the next one are left out too.
        """
        if "repeats" in self.columns:
            relation = relation.filter("NOT coalesce(repeats, false)")
        relation.create_view("met")
        there = "media_id = better AND time_s BETWEEN better_start_s AND better_end_s"
        self.connection.sql(f"FROM parts WHERE EXISTS (FROM met WHERE {there})").create_view("parts_met")
        first = "row_number() OVER (PARTITION BY copy_group ORDER BY duplicate, media_id, frame_index) = 1"
        return self.connection.sql(
            f"FROM met WHERE NOT EXISTS (FROM parts_met WHERE {_IN_PART}) QUALIFY copy_group IS NULL OR {first}"
        )

    def check(self, option: str, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, with DuckDB's complaints about an expression as one sentence.

        Raises ConfigError: the expression is wrong, or names a column that is missing.
        """
        try:
            return ask()
        except duckdb.Error as error:
            queried = [name for table in self._queried for name in self.tables.get(table, ())]
            known = [*self.columns, *BESIDE, *queried]
            raise explain(error, option, repr(self._store.root), known, find_fix) from error
