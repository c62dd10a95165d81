"""The second pass: from the parts of the first to tables of whole videos and whole runs, and to what people query.

Everything here reads derived columns, and tables made of them before, so it takes seconds where the first pass takes
hours. Each table lies in the output as one file for each unit, named by unit and fingerprint: what is there is done,
and what no longer belongs is swept at the end.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.calls import nulls, set_up
from pipeline.columns import MEDIA_ID, SOURCE
from pipeline.device import limit_memory
from pipeline.errors import ContractError
from pipeline.failure import SCHEMA as FAILURES
from pipeline.failure import Failure, to_table
from pipeline.ledger import COLUMNS, Ledger, Part
from pipeline.media.store import Media
from pipeline.media.units import Unit
from pipeline.plan import Plan
from pipeline.sample import Report, Sample
from pipeline.stage import Placement, Scope, Table
from pipeline.step import Step, fingerprint, marked
from pipeline.storage import Store

FRAMES, ERRORS = "frames", "errors"


@dataclass(frozen=True, kw_only=True)
class UnitRows:
    """All rows of a unit, wherever their columns lie."""

    unit: str
    parts: Mapping[str, tuple[Part, ...]]  # by step folder
    media: frozenset[str] | None = None  # the files that were asked for; None: all of the unit
    files: tuple[Media, ...] = ()  # all of the unit

    def read(self, store: Store, columns: Mapping[str, Sequence[str]]) -> pa.Table:
        """Columns by step folder, side by side, in the unit's order.

        `columns` includes the decoder's folder with media_id. Without columns where no file of the unit gave a frame.
        """
        pieces = []
        for folder, names in columns.items():
            parts = [store.read_table(f"{COLUMNS}/{folder}/{part.name}", names) for part in self.parts[folder]]
            pieces.append(pa.concat_tables(parts) if parts else None)
        found = [piece for piece in pieces if piece is not None]
        if not found:
            return pa.table({})
        fields = [item for piece in found for item in piece.schema]
        table = pa.table([piece[name] for piece in found for name in piece.column_names], schema=pa.schema(fields))
        if self.media is not None:
            table = table.filter(pc.is_in(table["media_id"], pa.array(sorted(self.media), pa.string())))
        return table

    def failures(self, store: Store, folder: str, empty_too: bool = False) -> pa.Table:
        """What a step wrote down as failed."""
        known = set(self.parts[folder])
        if empty_too:
            total = max((part.stop for part in known), default=0)
            known.add(Part(self.unit, total, total))
        paths = [f"{COLUMNS}/{folder}/{part.errors_name}" for part in sorted(known)]
        tables = [store.read_table(path) for path in paths if store.exists(path)]
        table = pa.concat_tables([*tables, FAILURES.empty_table()])
        if self.media is not None:
            table = table.filter(pc.is_in(table["media_id"], pa.array(sorted(self.media), pa.string())))
        return table

    def tag(self, *facts: object) -> str:
        """The name of what is made of these rows by a rule with the given facts."""
        chosen = None if self.media is None else sorted(self.media)
        return f"{self.unit}-{fingerprint({'facts': facts, 'media': chosen})}.parquet"


def unit_rows(plan: Plan, ledger: Ledger, units: Sequence[Unit], wanted: frozenset[str]) -> list[UnitRows]:
    """Units that every first-pass step is done with, in their order."""
    result = []
    for unit in units:
        found = {folder: ledger.parts(folder, plan.decode.folder, unit.name) for folder in plan.first_folders}
        if all(parts is not None for parts in found.values()):
            names = frozenset(media.media_id for media in unit.media)
            parts = {folder: tuple(parts or ()) for folder, parts in found.items()}
            chosen = None if names <= wanted else names & wanted
            result.append(UnitRows(unit=unit.name, parts=parts, media=chosen, files=unit.media))
    return result


class SecondPass(Protocol):
    """Work of the second pass: called once for each piece, in some process."""

    name: str
    cpus: float
    processes: Placement | None  # what those that keep its model ask for; None: it has none, and runs in tasks

    def set_up(self) -> None:
        """Make ready what all pieces in this process share; once, however often it is called."""

    def __call__(self, piece: tuple[UnitRows, ...], report: Report) -> None:
        """Do one piece."""


class Tables:
    """A second-pass step's tables, one call a file (MEDIA) or one for everything (DATASET)."""

    def __init__(self, step: Step, plan: Plan, store: Store) -> None:
        self.name, self.cpus = step.name, step.placement.cpus
        self.processes = step.placement if step.keeps_model_later else None
        self._step, self._store, self._rule, self._ready = step, store, plan.decode.config, False
        self._columns = _columns_of(plan, ("media_id", *step.stage.inputs))
        self._makers = {name: _writer(plan, name) for name in step.stage.reads}

    def pieces(self, units: Sequence[UnitRows]) -> list[tuple[UnitRows, ...]]:
        """What is still to do: a unit each, or all of them together."""
        if self._step.stage.scope is Scope.DATASET:
            every = tuple(units)
            return [every] if units and not self._done(every) else []
        return [(unit,) for unit in units if not self._done((unit,))]

    def live(self, units: Sequence[UnitRows]) -> dict[str, set[str]]:
        """By table, the names of the files that belong to these units."""
        groups = [tuple(units)] if self._step.stage.scope is Scope.DATASET else [(unit,) for unit in units]
        names = {_file(self._step, group) for group in groups}
        return {**dict.fromkeys(self._step.stage.tables, names), ERRORS: {f"{self.name}-{name}" for name in names}}

    def set_up(self) -> None:
        """Load the stage's model, in at most as much memory of a GPU as the placement says."""
        if not self._ready:
            place = self._step.placement
            if place.device == "cuda" and place.vram_gb:
                limit_memory(place.vram_gb)
            set_up(self._step)
            self._ready = True

    def __call__(self, piece: tuple[UnitRows, ...], report: Report) -> None:
        """Write the tables of one piece of work."""
        stage, started = self._step.stage, time.time()
        self.set_up()
        tables = [unit.read(self._store, self._columns) for unit in piece]
        rows = pa.concat_tables([table for table in tables if table.num_columns] or [pa.table({})])
        made: dict[str, list[pa.Table]] = {name: [] for name in stage.tables}
        failures: list[Failure] = []
        given = {name: self._table(name, piece) for name in self._makers}
        for media_id, batch in self._batches(rows):
            try:
                known = [_of_media(given, media_id)] if given else []
                result = stage(batch, *known, *self._media(media_id, piece))
            except Exception as error:
                failures.append(self._failure(media_id, error))
                continue
            for name, table in stage.tables.items():
                made[name].append(_checked(self.name, name, table, result))
        if failures:
            self._store.write_table(
                f"{ERRORS}/{self.name}-{_file(self._step, piece)}", self._step.mark(to_table(failures))
            )
        for name, table in stage.tables.items():
            whole = pa.concat_tables([*made[name], table.schema.empty_table()])
            self._store.write_table(f"{name}/{_file(self._step, piece)}", self._step.mark(whole))
        report(
            Sample(
                step=self.name,
                worker=f"{socket.gethostname()}:{os.getpid()}",
                rows=rows.num_rows,
                failures=len(failures),
                started=started,
                seconds=time.time() - started,
            )
        )

    def _batches(self, rows: pa.Table) -> list[tuple[str, pa.Table]]:
        inputs = list(self._step.stage.inputs)
        if not rows.num_rows:
            return []
        if self._step.stage.scope is Scope.DATASET:
            return [("", rows.select(inputs))]
        names = pc.unique(rows["media_id"]).to_pylist()
        return [(name, rows.filter(pc.equal(rows["media_id"], name)).select(inputs)) for name in names]

    def _media(self, media_id: str, piece: tuple[UnitRows, ...]) -> tuple[object, ...]:
        """What a stage that reads media is given after its rows."""
        if not self._step.stage.reads_media:
            return ()
        from pipeline.media.reader import Reader  # decoders are loaded where they are used, not by the driver

        (media,) = (media for unit in piece for media in unit.files if media.media_id == media_id)
        return (Reader(media=media, config=self._rule),)

    def _failure(self, media_id: str, error: Exception) -> Failure:
        trace = "".join(traceback.format_exception(error)[-12:])
        return Failure(
            media_id=media_id, step=self.name, kind=type(error).__name__, message=str(error), traceback=trace
        )

    def _table(self, name: str, piece: tuple[UnitRows, ...]) -> pa.Table:
        """Another step's table, as far as it was made of these units."""
        maker = self._makers[name]
        groups = [piece] if maker.stage.scope is Scope.DATASET else [(unit,) for unit in piece]
        found = [self._store.read_table(f"{name}/{_file(maker, group)}") for group in groups]
        return pa.concat_tables(found).replace_schema_metadata(None)

    def _done(self, piece: tuple[UnitRows, ...]) -> bool:
        return all(self._store.exists(f"{name}/{_file(self._step, piece)}") for name in self._step.stage.tables)


class Assembly:
    """`frames/` and `errors/`: what people query, put together from the parts."""

    name, cpus = "assemble", 1.0
    processes: Placement | None = None

    def __init__(self, plan: Plan, store: Store) -> None:
        self._plan, self._store = plan, store
        self._columns = _columns_of(
            plan, [*SOURCE.names, *(c for step in plan.first for c in step.stage.outputs.names)]
        )
        self._facts = plan.first_folders

    def pieces(self, units: Sequence[UnitRows]) -> list[tuple[UnitRows, ...]]:
        """Units whose rows are not yet in `frames/`."""
        return [(unit,) for unit in units if not self._store.exists(f"{FRAMES}/{unit.tag(*self._facts)}")]

    def live(self, units: Sequence[UnitRows]) -> dict[str, set[str]]:
        """By folder, the names of the files that belong to these units."""
        names = {unit.tag(*self._facts) for unit in units}
        return {FRAMES: names, ERRORS: names}

    def set_up(self) -> None:
        """Nothing to make ready."""

    def __call__(self, piece: tuple[UnitRows, ...], report: Report) -> None:  # noqa: ARG002
        """Write one unit's rows and errors."""
        (unit,) = piece
        name = unit.tag(*self._facts)
        first = [unit.failures(self._store, step.folder) for step in self._plan.first]
        failures = pa.concat_tables([unit.failures(self._store, self._plan.decode.folder, empty_too=True), *first])
        if failures.num_rows:
            dummies = {dummy for step in self._plan.first for dummy in step.dummies}
            self._store.write_table(f"{ERRORS}/{name}", failures.cast(marked(failures.schema, dummies)))
        table = unit.read(self._store, self._columns)
        schema = frames_schema(self._plan)
        self._store.write_table(f"{FRAMES}/{name}", table.cast(schema) if table.num_columns else nulls(schema, 0))


def frames_schema(plan: Plan) -> pa.Schema:
    """The columns of `frames/`, with their descriptions and units, marked where some came from random weights."""
    schema = pa.schema([*SOURCE, *(item for step in plan.first for item in step.table_schema)])
    return marked(schema, {dummy for step in plan.first for dummy in step.dummies})


def sweep(store: Store, owners: Sequence[Assembly | Tables], units: Sequence[UnitRows]) -> int:
    """Delete files of tables that no longer belong; returns how many."""
    live: dict[str, set[str]] = {}
    for owner in owners:
        for folder, names in owner.live(units).items():
            live.setdefault(folder, set()).update(names)
    stale = [f"{folder}/{name}" for folder, names in live.items() for name in set(store.names(folder)) - names]
    for path in stale:
        store.remove(path)
    return len(stale)


def _columns_of(plan: Plan, names: Sequence[str]) -> dict[str, list[str]]:
    """By step folder, which of the named columns lie there; the decoder's first."""
    wanted = list(dict.fromkeys(names))
    found = {plan.decode.folder: [name for name in wanted if name in SOURCE.names]}
    for step in plan.first:
        if inside := [name for name in wanted if name in step.stage.outputs.names]:
            found[step.folder] = inside
    return found


def _writer(plan: Plan, table: str) -> Step:
    return next(step for step in plan.second if table in step.stage.tables)


def _file(step: Step, piece: tuple[UnitRows, ...]) -> str:
    """The name of a step's file in each of its tables."""
    if step.stage.scope is Scope.DATASET:
        everything = fingerprint({"units": [unit.tag(step.fingerprint) for unit in piece]})
        return f"all-{everything}.parquet"
    return piece[0].tag(step.fingerprint)


def _of_media(tables: Mapping[str, pa.Table], media_id: str) -> dict[str, pa.Table]:
    """The rows of one file; all rows where no file is named."""
    if not media_id:
        return dict(tables)
    return {name: table.filter(pc.equal(table[MEDIA_ID.name], media_id)) for name, table in tables.items()}


def _checked(step: str, name: str, declared: Table, result: object) -> pa.Table:
    table = result.get(name) if isinstance(result, Mapping) else None
    if (
        not isinstance(table, pa.Table)
        or table.schema.names != declared.schema.names
        or table.schema.types != declared.schema.types
    ):
        returned = (
            table.schema.to_string(show_field_metadata=False) if isinstance(table, pa.Table) else type(table).__name__
        )
        both = f"declared {declared.schema.names}, returned {returned}"
        raise ContractError(f"Step {step!r} broke its promise for table {name!r}: {both}.")
    return table.cast(declared.schema)
