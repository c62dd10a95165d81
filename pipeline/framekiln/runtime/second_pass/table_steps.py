"""Tables of second-pass steps: one call of the stage for each file (MEDIA), or for the whole run (DATASET)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import SOURCE
from framekiln.contract.errors import ContractError, DamagedError
from framekiln.contract.output_names import ERRORS
from framekiln.contract.row_errors import Failure, to_table, traced
from framekiln.contract.stage import Scope, Stage, Table
from framekiln.output.object_store import Store
from framekiln.output.parquet import exact
from framekiln.planning.plan import Plan
from framekiln.planning.step import Step, fingerprint
from framekiln.profiling.records import PACKET, Record, now
from framekiln.profiling.step_work import Recorder, StepWork
from framekiln.runtime.chosen_rows import RowChooser
from framekiln.runtime.recovery.attempt_log import Reporter, begin_attempt
from framekiln.runtime.recovery.captured_error import CapturedError
from framekiln.runtime.second_pass.earlier_tables import digest_call, list_earlier, read_earlier, with_digests
from framekiln.runtime.second_pass.second_pass import SecondPass, UnitRows, columns_of
from framekiln.runtime.stage_caller import Batch, CallData, StageCaller
from framekiln.runtime.stage_setup import set_up, share_gpu

GENERATION = b"framekiln.generation"
"""Metadata key of a Parquet file for the number of tables before it."""


def kept_tables(store: Store, stage: Stage) -> dict[str, pa.Table]:
    """Return the tables of the last run that a stage keeps, empty if there are none.

    Raises OutputError: the disk or the bucket refuses.
    """
    return {name: _read(store, name, stage.tables[name]) for name in stage.keeps}


def last_files(store: Store, table: str, replacements: Collection[str]) -> set[str]:
    """Return the name of the file with a table's last content, unless one of `replacements` exists."""
    generations = _read_generations(store, table)
    return set() if generations.keys() & set(replacements) else set(_find_last(generations))


def numbered(store: Store, content: pa.Table, table: str) -> pa.Table:
    """Return a table's content, marked as its last."""
    number = 1 + max(_read_generations(store, table).values(), default=0)
    return content.replace_schema_metadata({**(content.schema.metadata or {}), GENERATION: str(number)})


def _read(store: Store, name: str, table: Table) -> pa.Table:
    for file in _find_last(_read_generations(store, name)):
        with suppress(DamagedError):  # another program's file: its columns have other types or names
            content = store.read_table(f"{name}/{file}", expected=exact(table.schema))
            return content.select(table.schema.names).cast(table.schema)
    return table.schema.empty_table()


def _find_last(generations: dict[str, int]) -> list[str]:
    return [max(generations, key=lambda name: (generations[name], name))] if generations else []


def _read_generations(store: Store, table: str) -> dict[str, int]:
    """Return the number of each readable file of a table; 0 if it has none."""
    found = {}
    for name in store.names(table):
        try:
            with store.parquet(f"{table}/{name}") as file:
                for _ in file.iter_batches():
                    pass  # a damaged page is found on reading
                found[name] = int((file.schema_arrow.metadata or {}).get(GENERATION, b"0"))
        except (DamagedError, ValueError):  # the latter: of the number
            continue
    return found


@dataclass(frozen=True, kw_only=True)
class _Made:
    """Results of the calls of a step."""

    results: dict[str, list[pa.Table]]  # by table
    failures: list[Failure] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)  # digests of files' inputs, by media_id
    rows: list[int] = field(default_factory=lambda: [0])  # number of rows of each call


class Tables(SecondPass):
    """One second-pass step and its tables."""

    def __init__(self, step: Step, plan: Plan, store: Store) -> None:
        self.name, self.cpus = step.name, step.placement.cpus
        self.processes = step.placement if step.keeps_model_later else None
        self.over_all = step.stage.scope is Scope.DATASET
        self.kept = frozenset(step.stage.keeps)
        self._step, self._store, self._decode_config, self._is_set_up = step, store, plan.decode.config, False
        self._caller = StageCaller(step)
        test, deciding = step.condition.test, (*SOURCE.names,) if step.condition.is_given else ()
        names = ("media_id", *step.stage.received, *deciding, *sorted(test.names if test else ()))
        self._columns = columns_of(plan, names)
        self._narrowed = [
            each.folder
            for each in plan.first
            if each.is_narrowed and not set(step.stage.inputs).isdisjoint(each.stage.outputs.names)
        ]
        self._writers = {
            name: next(step for step in plan.second if name in step.stage.tables) for name in step.stage.input_tables
        }

    def missing(self, units: Sequence[UnitRows]) -> list[tuple[UnitRows, ...]]:
        """Return the units without tables, one by one or all together."""
        written = [set(self._store.names(name)) for name in self._step.stage.tables]
        done = set[str].intersection(*written)
        return [call for call in self._list_calls(units) if _name_file(self._step, call) not in done]

    def live(self, units: Sequence[UnitRows]) -> dict[str, set[str]]:
        """Return the names of the files that belong to these units, by table."""
        calls = self._list_calls(units, allow_empty=True)
        names = {_name_file(self._step, call) for call in calls}
        written = set(self._store.names(next(iter(self._step.stage.tables))))
        left = [] if self.over_all else [unit for (unit,) in calls if _name_file(self._step, (unit,)) not in written]
        earlier = {name for unit in left for name in list_earlier(self._step, unit)}
        tables = dict.fromkeys(self._step.stage.tables, names | earlier)
        tables |= {name: names | last_files(self._store, name, names) for name in self.kept}
        return {**tables, ERRORS: {f"{self.name}-{name}" for name in names}}

    def _list_calls(self, units: Sequence[UnitRows], *, allow_empty: bool = False) -> list[tuple[UnitRows, ...]]:
        if self.over_all:
            return [tuple(units)] if units or allow_empty else []
        return [(unit,) for unit in units]

    def set_up(self) -> None:
        """Load the stage's model once, within the GPU memory that the placement states."""
        if not self._is_set_up:
            share_gpu([self._step])
            set_up(self._step)
            self._is_set_up = True

    def __call__(self, units: tuple[UnitRows, ...], report: Reporter) -> None:
        """Write the tables of one unit, or of all."""
        file, recorder = _name_file(self._step, units), Recorder.of(self._store)
        record = Record(kind=PACKET, step=self.name, unit=file, started=now())
        record.device = self._step.placement.device
        attempt = begin_attempt(report, f"step {self.name!r} at {file}")
        rows = self._read_rows(units)
        record.stop = rows.num_rows
        work = StepWork(record, recorder)
        made = self._call_all(units, rows, {"attempt": attempt, "work": work})
        before_write = now()
        self._write(units, made)
        event = work.finish(rows=sum(made.rows), failures=made.failures, around={"write": now() - before_write})
        recorder.flush()  # before anybody learns that the work is done
        recorder.idle()
        attempt.end()
        report(event)

    def _read_rows(self, units: tuple[UnitRows, ...]) -> pa.Table:
        tables = [unit.read(self._store, self._columns, self._narrowed) for unit in units]
        rows = pa.concat_tables([table for table in tables if table.num_columns] or [pa.table({})])
        if self._step.condition.is_given and rows.num_columns:
            rows = rows.filter(pa.array(RowChooser(self._store).choose(rows, self._step.condition)))
        return rows

    def count_changed(self, unit: UnitRows) -> dict[str, int]:
        """Return a unit's files with other rows than earlier runs with other conditions had, and their rows."""
        if not self.missing([unit]):
            return {}
        earlier, calls = (
            read_earlier(self._store, self._step, (unit,)),
            self._list_stage_calls((unit,), self._read_rows((unit,)), {}),
        )
        found = {name: (digest_call(self._step, data), data.rows.num_rows) for name, data in calls}
        return {name: rows for name, (digest, rows) in found.items() if (name, digest) not in earlier}

    def _call_all(self, units: tuple[UnitRows, ...], rows: pa.Table, around: Mapping[str, Any]) -> _Made:
        """Return the tables of all files, or of the run. Results of an earlier run on the same rows are reused."""
        kept, earlier = kept_tables(self._store, self._step.stage), read_earlier(self._store, self._step, units)
        made = _Made(results={name: [] for name in self._step.stage.tables})
        for media_id, data in self._list_stage_calls(units, rows, kept):
            digest = "" if self.over_all else digest_call(self._step, data)
            if (result := earlier.get((media_id, digest))) is None:
                self.set_up()
                made.rows.append(data.rows.num_rows)
                batch = Batch(np.arange(data.rows.num_rows), data.rows.num_rows)
                ((_, result),) = self._caller.settle(replace(data, **around), batch)
            if isinstance(result, CapturedError):
                made.failures.append(result.failure(self.name, media_id))
                continue
            made.digests[media_id] = digest
            for table, declared in self._step.stage.tables.items():
                made.results[table].append(_check_table(self.name, table, declared, result))
        made.results.update({name: made.results[name] or [table] for name, table in kept.items()})  # no call returned
        return made

    def _write(self, units: tuple[UnitRows, ...], made: _Made) -> None:
        file = _name_file(self._step, units)
        if made.failures:
            inputs = {name: path for unit in units for name, path in unit.inputs.items()}
            errors = traced(to_table(made.failures), inputs, {self.name: self._step.fingerprint})
            self._store.write_table(f"{ERRORS}/{self.name}-{file}", self._step.mark(errors))
        for path in (f"{table}/{name}" for name in list_earlier(self._step, *units) for table in made.results):
            self._store.remove(path)  # no table may have a file's rows twice
        for name, table in self._step.stage.tables.items():
            whole = self._step.mark(pa.concat_tables([*made.results[name], table.schema.empty_table()]))
            whole = numbered(self._store, whole, name) if name in self.kept else with_digests(whole, made.digests)
            self._store.write_table(f"{name}/{file}", whole)

    def _list_stage_calls(
        self, units: tuple[UnitRows, ...], rows: pa.Table, kept: Mapping[str, pa.Table]
    ) -> Iterator[tuple[str, CallData]]:
        """Yield the media_id and data of each call; an empty media_id for a call of the whole run."""
        tables = {name: _read_table(self._store, step, name, units) for name, step in self._writers.items()}
        for media_id, own in self._split_by_media(rows):
            extra: list[object] = []
            if tables and media_id:
                masks = {name: pc.equal(table["media_id"], media_id) for name, table in tables.items()}
                extra.append({name: tables[name].filter(mask) for name, mask in masks.items()})
            elif tables:
                extra.append(tables)
            if kept:
                extra.append(kept)
            elif self._step.stage.reads_media:
                from framekiln.media.packets.decode import Reader  # decoders are loaded here, not by the driver

                (media,) = (media for unit in units for media in unit.files if media.media_id == media_id)
                extra.append(Reader(media=media, config=self._decode_config))
            yield media_id, CallData(rows=own, extra=tuple(extra), name=media_id)

    def _split_by_media(self, rows: pa.Table) -> list[tuple[str, pa.Table]]:
        inputs = list(self._step.stage.received)
        if not rows.num_rows:
            return []
        if self.over_all:
            return [("", rows.select(inputs))]
        names = pc.unique(rows["media_id"]).to_pylist()
        return [(name, rows.filter(pc.equal(rows["media_id"], name)).select(inputs)) for name in names]

    def read(self, name: str, units: tuple[UnitRows, ...]) -> pa.Table:
        """Return the rows of one of its tables about these units, which it has finished."""
        return _read_table(self._store, self._step, name, units)


def _read_table(store: Store, writer: Step, name: str, units: tuple[UnitRows, ...]) -> pa.Table:
    groups = [units] if writer.stage.scope is Scope.DATASET else [(unit,) for unit in units]
    schema = writer.stage.tables[name].schema
    tables = [store.read_table(f"{name}/{_name_file(writer, group)}", expected=schema) for group in groups]
    return pa.concat_tables([schema.empty_table(), *tables]).replace_schema_metadata(None)


def _name_file(step: Step, units: tuple[UnitRows, ...]) -> str:
    if step.stage.scope is Scope.DATASET:
        everything = fingerprint({"units": [unit.tag(step.fingerprint) for unit in units]})
        return f"all-{everything}.parquet"
    return units[0].tag(step.fingerprint)


def _check_table(step: str, name: str, declared: Table, result: Any) -> pa.Table:
    table = result.get(name) if isinstance(result, Mapping) else None
    if isinstance(table, pa.Table):
        if table.schema.names == declared.schema.names and table.schema.types == declared.schema.types:
            return table.cast(declared.schema)
        returned = table.schema.to_string(show_field_metadata=False)
    else:
        returned = type(table).__name__
    raise ContractError(
        f"Step {step!r} returned another table {name!r} than its `tables` declare; make the two agree. "
        f"Declared {declared.schema.names}, returned {returned}.",
        code="FK-UNDECLARED-TABLE",
    )
