"""The second pass: from the parts of the first pass to tables of whole videos and whole runs, and to final tables.

It reads derived columns and tables, so it takes seconds where the first pass takes hours. Each table has one file for
each unit in the output, named by unit and fingerprint. A file that exists is done; files that no longer belong are
swept at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import SOURCE
from framekiln.contract.output_names import COLUMNS
from framekiln.contract.placement import Placement
from framekiln.contract.row_errors import SCHEMA as FAILURES
from framekiln.media.files import MediaFile
from framekiln.media.media_ids import escape
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger, Part
from framekiln.output.object_store import Store
from framekiln.planning.plan import Plan
from framekiln.planning.step import fingerprint
from framekiln.profiling.events import Report
from framekiln.runtime.recovery.attempt_log import AttemptLog


@dataclass(frozen=True, kw_only=True)
class UnitRows:
    """All rows of a unit, with columns in the folders of several steps."""

    unit: str
    parts: Mapping[str, tuple[Part, ...]]  # by step folder
    media: frozenset[str] | None = None  # the requested files; None: all of the unit
    files: tuple[MediaFile, ...] = ()  # all of the unit

    def read(self, store: Store, columns: Mapping[str, pa.Schema]) -> pa.Table:
        """Read columns, given by step folder, into one table in the unit's order.

        `columns` includes the decoder's folder with media_id. The table has no columns if no file gave a frame.
        """
        tables = []
        for folder, schema in columns.items():
            paths = (f"{COLUMNS}/{folder}/{part.name}" for part in self.parts[folder])
            if parts := [store.read_table(path, schema.names, expected=schema) for path in paths]:
                tables.append(pa.concat_tables(parts))
        if not tables:
            return pa.table({})
        fields = [item for piece in tables for item in piece.schema]
        columns_read = [piece[name] for piece in tables for name in piece.column_names]
        return self._select_requested(pa.table(columns_read, schema=pa.schema(fields)))

    def failures(self, store: Store, folder: str, empty_too: bool = False) -> pa.Table:
        """Return the failures that a step wrote; with `empty_too`, also those of the part that ends the unit."""
        parts = set(self.parts[folder])
        if empty_too:
            total = max((part.stop for part in parts), default=0)
            parts.add(Part(self.unit, total, total))
        paths = [f"{COLUMNS}/{folder}/{part.errors_name}" for part in sorted(parts)]
        tables = [store.read_table(path, FAILURES.names, expected=FAILURES) for path in paths if store.exists(path)]
        return self._select_requested(pa.concat_tables([*tables, FAILURES.empty_table()]))

    def _select_requested(self, table: pa.Table) -> pa.Table:
        if self.media is None:
            return table
        return table.filter(pc.is_in(table["media_id"], pa.array(sorted(self.media), pa.string())))

    @property
    def inputs(self) -> dict[str, str]:
        """Return the path of each file by media_id, escaped for a table."""
        return {media.media_id: escape(media.path) for media in self.files}

    def tag(self, *facts: object) -> str:
        """Return the name of the file that is computed from these rows by a rule with the given facts."""
        media = None if self.media is None else sorted(self.media)
        return f"{self.unit}-{fingerprint({'facts': facts, 'media': media})}.parquet"


def unit_rows(plan: Plan, ledger: Ledger, units: Sequence[Unit], wanted: frozenset[str]) -> list[UnitRows]:
    """Return the units that every first-pass step has finished, in their order."""
    result = []
    for unit in units:
        finished = {folder: ledger.parts(folder, plan.decode.folder, unit.name) for folder in plan.first_folders}
        if all(parts is not None for parts in finished.values()):
            parts = {folder: tuple(parts or ()) for folder, parts in finished.items()}
            result.append(replace(expected_rows(unit, wanted), parts=parts))
    return result


def expected_rows(unit: Unit, wanted: frozenset[str]) -> UnitRows:
    """Return a unit as the second pass will name it, before its parts are there."""
    names = frozenset(media.media_id for media in unit.media)
    own = (names & wanted) - unit.superseded
    return UnitRows(unit=unit.name, parts={}, media=None if own == names else own, files=unit.media)


class SecondPass(Protocol):
    """Work of the second pass, called in any process with one unit, or with all."""

    name: str
    cpus: float
    over_all: bool  # one call covers all units
    kept: frozenset[str]  # tables that are replaced, but never only deleted
    processes: Placement | None  # of the processes that keep its model; None: it has no model, and runs in tasks

    def set_up(self) -> None:
        """Load what all calls in this process share; once it is there, do nothing."""

    def missing(self, units: Sequence[UnitRows]) -> list[tuple[UnitRows, ...]]:
        """Return the units without tables, by the calls that write them."""

    def live(self, units: Sequence[UnitRows]) -> dict[str, set[str]]:
        """Return the names of the files that belong to these units, by table."""

    def __call__(self, units: tuple[UnitRows, ...], report: Report, log: AttemptLog) -> None:
        """Write the tables of units."""


def columns_of(plan: Plan, names: Sequence[str]) -> dict[str, pa.Schema]:
    """Return the named columns by the step folder that holds them; the decoder's is first."""
    columns = {plan.decode.folder: _select(SOURCE, names)}
    for step in plan.first:
        if own := _select(step.table_schema, names):
            columns[step.folder] = own
    return columns


def _select(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in dict.fromkeys(names) if name in schema.names])
