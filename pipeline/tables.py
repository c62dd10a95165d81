"""The tables of second-pass steps: one call a file (MEDIA), or one for everything (DATASET)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns import MEDIA_ID
from pipeline.errors import ContractError
from pipeline.failure import Failure, reasons, to_table, traced
from pipeline.filecalls import called
from pipeline.journal import Journal, take_up, worker_name
from pipeline.plan import Plan
from pipeline.readiness import set_up, share_gpu
from pipeline.recorder import Notes, Recorder
from pipeline.sample import Report, Sample
from pipeline.second import ERRORS, UnitRows, columns_of
from pipeline.stage import Scope, Table
from pipeline.step import Step, fingerprint
from pipeline.storage import Store
from pipeline.telemetry.records import CALL, PACKET, Record


class Tables:
    """A second-pass step's tables, one call a file (MEDIA) or one for everything (DATASET)."""

    def __init__(self, step: Step, plan: Plan, store: Store) -> None:
        self.name, self.cpus = step.name, step.placement.cpus
        self.processes = step.placement if step.keeps_model_later else None
        self.over_all = step.stage.scope is Scope.DATASET
        self._step, self._store, self._rule, self._ready = step, store, plan.decode.config, False
        self._columns = columns_of(plan, ("media_id", *step.stage.inputs))
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
            share_gpu([self._step])
            set_up(self._step)
            self._ready = True

    def __call__(self, piece: tuple[UnitRows, ...], report: Report, journal: Journal) -> None:
        """Write the tables of one piece of work."""
        stage, started = self._step.stage, time.time()
        work = f"step {self.name!r} at {_file(self._step, piece)}"
        care = take_up(journal, work, worker_name())
        self.set_up()
        tables = [unit.read(self._store, self._columns) for unit in piece]
        rows = pa.concat_tables([table for table in tables if table.num_columns] or [pa.table({})])
        made: dict[str, list[pa.Table]] = {name: [] for name in stage.tables}
        failures: list[Failure] = []
        given = {name: self._table(name, piece) for name in self._makers}
        notes = Notes()
        for media_id, batch in self._batches(rows):
            known = [_of_media(given, media_id)] if given else []
            begin = time.time()
            result = called(self._step, media_id, batch, [*known, *self._media(media_id, piece)], care)
            self._call(piece, notes, batch.num_rows, begin, failed=isinstance(result, Failure))
            if isinstance(result, Failure):
                failures.append(result)
                continue
            for name, table in stage.tables.items():
                made[name].append(_checked(self.name, name, table, result))
        written = time.time()
        self._write(piece, made, failures)
        around = {"write": time.time() - written}
        self._packet(piece, notes, rows.num_rows, started, around)
        journal.end(work)
        report(
            Sample(
                step=self.name,
                worker=worker_name(),
                rows=rows.num_rows,
                failures=len(failures),
                reasons=reasons(failures),
                started=started,
                seconds=time.time() - started,
                phases=notes.phases,
                around=around,
                calls=tuple(notes.calls),
                device=self._step.placement.device,
                memory=notes.memory,
            )
        )

    def _call(self, piece: tuple[UnitRows, ...], notes: Notes, rows: int, started: float, *, failed: bool) -> None:
        """Write down one call."""
        if failed:
            notes.dropped(self._step.stage)
            return
        told = self._record(CALL, piece, rows, started)
        notes.calls.append(told.seconds)
        told.durations, told.items, told.memory = notes.taken(self._step.stage, told.device)
        Recorder.of(self._store).write(told)

    def _packet(
        self, piece: tuple[UnitRows, ...], notes: Notes, rows: int, started: float, around: Mapping[str, float]
    ) -> None:
        """Write down one piece, before anybody hears that it is done."""
        told = self._record(PACKET, piece, rows, started)
        told.durations, told.items, told.memory = {**notes.phases, **around}, notes.items, notes.memory
        recorder = Recorder.of(self._store)
        recorder.write(told)
        recorder.flush()
        recorder.free()

    def _record(self, kind: str, piece: tuple[UnitRows, ...], rows: int, started: float) -> Record:
        return Record(
            kind=kind,
            step=self.name,
            device=self._step.placement.device,
            unit=_file(self._step, piece),
            stop=rows,
            rows=rows,
            started=started,
            seconds=time.time() - started,
        )

    def _write(
        self, piece: tuple[UnitRows, ...], made: Mapping[str, list[pa.Table]], failures: Sequence[Failure]
    ) -> None:
        file = _file(self._step, piece)
        if failures:
            inputs = {name: path for unit in piece for name, path in unit.inputs.items()}
            told = traced(to_table(failures), inputs, {self.name: self._step.fingerprint})
            self._store.write_table(f"{ERRORS}/{self.name}-{file}", self._step.mark(told))
        for name, table in self._step.stage.tables.items():
            whole = pa.concat_tables([*made[name], table.schema.empty_table()])
            self._store.write_table(f"{name}/{file}", self._step.mark(whole))

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

    def _table(self, name: str, piece: tuple[UnitRows, ...]) -> pa.Table:
        """Another step's table, as far as it was made of these units."""
        maker = self._makers[name]
        groups = [piece] if maker.stage.scope is Scope.DATASET else [(unit,) for unit in piece]
        found = [self._store.read_table(f"{name}/{_file(maker, group)}") for group in groups]
        return pa.concat_tables(found).replace_schema_metadata(None)

    def _done(self, piece: tuple[UnitRows, ...]) -> bool:
        return all(self._store.exists(f"{name}/{_file(self._step, piece)}") for name in self._step.stage.tables)


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
