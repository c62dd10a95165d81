"""The second pass: from parts of the first pass to tables of whole videos and runs, and to final tables.

It reads derived columns and tables, so it takes seconds where the first pass takes hours. Each table has one file for
each unit in the output, named by unit and fingerprint. An existing file is done; files that no longer belong are
removed at the end.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.columns import MEDIA_ID, PLACES, SOURCE
from framekiln.contract.errors import OutputError
from framekiln.contract.output_names import COLUMNS, ERRORS, FRAMES
from framekiln.contract.placement import Placement
from framekiln.contract.row_errors import SCHEMA as FAILURES
from framekiln.contract.row_errors import traced
from framekiln.media.files import MediaFile, printable_path, shown_path, uri_of
from framekiln.media.media_ids import escape
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger, Part
from framekiln.output.object_store import Store
from framekiln.output.unit_table import unit_of
from framekiln.planning.plan import Plan
from framekiln.planning.step import fingerprint, marked
from framekiln.runtime.parts import read_unchosen
from framekiln.runtime.recovery.attempt_log import Reporter
from framekiln.runtime.step_results import nulls

OF_A_RUN = re.compile(r"(?:.*-)?(?:all|[0-9a-f]{16})-[0-9a-f]{12}\.parquet")

ASSEMBLE = "assemble"
_PLACE = 1  # index of `PLACES`, after media_id


@dataclass(frozen=True, kw_only=True)
class UnitRows:
    """All rows of a unit, with columns in the folders of several steps."""

    unit: str
    parts: Mapping[str, tuple[Part, ...]]  # by step folder
    media: frozenset[str] | None = None  # the requested files; None: all files of the unit
    files: tuple[MediaFile, ...] = ()  # all files of the unit
    origins: tuple[str, ...] = ()  # units that had its files before; see `Unit`

    def read(self, store: Store, columns: Mapping[str, pa.Schema], narrowed: Collection[str] = ()) -> pa.Table:
        """Read columns, given by step folder, into one table in the unit's order.

        `columns` includes the decoder's folder with media_id. The table has no columns if no file gave a frame. Rows
        that a step in one of the `narrowed` folders skipped are left out.
        """
        tables, unchosen = [], []
        for folder, schema in columns.items():
            paths = (f"{COLUMNS}/{folder}/{part.name}" for part in self.parts[folder])
            if parts := [store.read_table(path, schema.names, expected=schema) for path in paths]:
                tables.append(pa.concat_tables([part.replace_schema_metadata(None) for part in parts]))
                if folder in narrowed:
                    unchosen.append(np.concatenate([read_unchosen(part.schema, part.num_rows) for part in parts]))
        if not tables:
            return pa.table({})
        fields = [item for piece in tables for item in piece.schema]
        columns_read = [piece[name] for piece in tables for name in piece.column_names]
        table = pa.table(columns_read, schema=pa.schema(fields))
        return self._select_requested(table.filter(~np.any(unchosen, axis=0)) if unchosen else table)

    def unchosen(self, store: Store, folder: str) -> NDArray[np.bool_] | None:
        """Return which rows (n) the step with this folder skipped; None without a condition."""
        masks = []
        for part in self.parts[folder]:
            with store.parquet(f"{COLUMNS}/{folder}/{part.name}") as file:
                mask = read_unchosen(file.schema_arrow, file.metadata.num_rows)
            if mask is None:  # then no part of the folder has one
                return None
            masks.append(mask)
        return np.concatenate(masks) if masks else None

    def failures(self, store: Store, folder: str, empty_too: bool = False) -> pa.Table:
        """Return a step's failures; with `empty_too`, also those of the part that ends the unit."""
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
        return {media.media_id: escape(shown_path(media.path)) for media in self.files}

    def tag(self, *facts: object) -> str:
        """Return the name of the file computed from these rows by a rule with these facts."""
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
    """Return a unit with the name that the second pass will give it, before its parts exist."""
    names = frozenset(media.media_id for media in unit.media)
    own = (names & wanted) - unit.superseded - unit.stale
    media = None if own == names else own
    return UnitRows(unit=unit.name, parts={}, media=media, files=unit.media, origins=unit.origins)


class SecondPass(ABC):
    """Work of the second pass, called in any process with one unit or all."""

    name: str
    cpus: float = 1.0
    over_all: bool = False  # one call covers all units
    kept: frozenset[str] = frozenset()  # tables that are replaced, never only deleted
    processes: Placement | None = None  # of the processes that keep its model; None: no model, it runs in tasks

    def set_up(self) -> None:  # noqa: B027 - without a model there is nothing to load
        """Load what all calls in this process share; later calls do nothing."""

    @abstractmethod
    def missing(self, units: Sequence[UnitRows]) -> list[tuple[UnitRows, ...]]:
        """Return the units without tables, by the calls that write them."""

    @abstractmethod
    def live(self, units: Sequence[UnitRows]) -> dict[str, set[str]]:
        """Return the names of the files that belong to these units, by table."""

    @abstractmethod
    def __call__(self, units: tuple[UnitRows, ...], report: Reporter) -> None:
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


class Assembly(SecondPass):
    """The tables `frames/` and `errors/`, assembled from the parts."""

    name = ASSEMBLE

    def __init__(self, plan: Plan, store: Store) -> None:
        """Keep the plan's names and schemas without its stages, so that a process without their code can assemble."""
        self._store, self._decode = store, plan.decode.folder
        self._columns = columns_of(plan, [*SOURCE.names, *(c for step in plan.first for c in step.stage.outputs.names)])
        self._facts, self._schema = plan.first_folders, frames_schema(plan)
        self._steps = [step.folder for step in plan.first]
        self._dummies = {dummy for step in plan.first for dummy in step.dummies}
        self._fingerprints = fingerprints(plan)

    def missing(self, units: Sequence[UnitRows]) -> list[tuple[UnitRows, ...]]:
        """Return the units with rows that are not in `frames/` yet."""
        written = set(self._store.names(FRAMES))
        return [(unit,) for unit in units if self.name_of(unit) not in written]

    def live(self, units: Sequence[UnitRows]) -> dict[str, set[str]]:
        """Return the names of the files that belong to these units, by folder."""
        names = {self.name_of(unit) for unit in units}
        return {FRAMES: names, ERRORS: names}

    def __call__(self, units: tuple[UnitRows, ...], report: Reporter | None = None) -> None:  # noqa: ARG002
        """Write one unit's errors, then its rows."""
        (unit,) = units
        name = self.name_of(unit)
        first = [unit.failures(self._store, folder) for folder in self._steps]
        failures = pa.concat_tables([unit.failures(self._store, self._decode, empty_too=True), *first])
        if failures.num_rows:
            errors = traced(failures, unit.inputs, self._fingerprints)
            self._store.write_table(f"{ERRORS}/{name}", errors.cast(marked(errors.schema, self._dummies)))
        table = unit.read(self._store, self._columns)
        if not table.num_columns:
            table = nulls(self._schema, 0)
        else:
            places = {media.media_id: (uri_of(media.path), printable_path(media.path)) for media in unit.files}
            found = [places[media_id] for media_id in table[MEDIA_ID.name].to_pylist()]
            for number, item in enumerate(PLACES):
                values = pa.array([row[number] for row in found], item.type)
                table = table.add_column(_PLACE + number, item, values)
        self._store.write_table(f"{FRAMES}/{name}", table.cast(self._schema))

    def name_of(self, unit: UnitRows) -> str:
        """Return the name of a unit's tables."""
        return name_rows(unit, self._facts)


def name_rows(unit: UnitRows, folders: Sequence[str]) -> str:
    """Return the name of a unit's files in `frames/` and `errors/`, by the folders of all first-pass steps.

    Moved files with unchanged times get new names.
    """
    return unit.tag(*folders, [uri_of(media.path) for media in unit.files])


def fingerprints(plan: Plan) -> dict[str, str]:
    """Return the facts that decide the rows of `frames/`: fingerprints of decoding and first-pass steps."""
    return {plan.decode.name: plan.decode.fingerprint, **{step.name: step.fingerprint for step in plan.first}}


def frames_schema(plan: Plan) -> pa.Schema:
    """Return the columns of `frames/` with descriptions and units, marked if they came from random weights."""
    columns = [*SOURCE, *(item for step in plan.first for item in step.table_schema)]
    schema = pa.schema([*columns[:_PLACE], *PLACES, *columns[_PLACE:]])
    return marked(schema, {dummy for step in plan.first for dummy in step.dummies})


def sweep(
    store: Store, owners: Sequence[SecondPass], units: Sequence[UnitRows], share: Collection[str] | None = None
) -> int:
    """Delete table files that no longer belong, and return their number.

    A shard may delete the files of a `share` of the units; None: all.
    """
    live: dict[str, set[str]] = {}
    for owner in owners:
        for folder, names in owner.live(units).items():
            live.setdefault(folder, set()).update(names)
    others = [f"{folder}/{name}" for folder, names in live.items() for name in set(store.names(folder)) - names]
    stale = [path for path in others if share is None or unit_of(path) in share]
    for path in stale:
        store.remove(path)
    return len(stale)


def refuse_foreign(store: Store, owners: Sequence[SecondPass]) -> None:
    """Check that a run wrote every file in the tables' folders: a folder of photos may be called frames, too.

    Raises OutputError: a file comes from elsewhere.
    """
    for folder in sorted({folder for owner in owners for folder in owner.live([])}):
        names = [name for name in store.names(folder) if not name.startswith(".")]  # file managers write hidden ones
        if other := next((name for name in names if OF_A_RUN.fullmatch(name) is None), None):
            raise OutputError(
                f"{store.url(folder)!r} holds {other!r}, which no run wrote and the sweep at the end would delete. "
                "Move it, or choose another --output.",
                code="FK-FOREIGN-FILE",
            )
