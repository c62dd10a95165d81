"""The rows that conditions choose by a selection or by tables; they are found before their steps run.

Tables are written after the first pass. So the steps that write them run first, in a pass of their own. The rows are
kept in the output, and the plan is made again with them.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from framekiln.contract.columns import KEYS, SOURCE
from framekiln.contract.errors import ConfigError, DamagedError
from framekiln.contract.output_names import FRAMES, ROW_SETS
from framekiln.contract.user_files import expand
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.planning.condition import Condition, RowSet, RowSets
from framekiln.planning.lineage import with_producers
from framekiln.planning.plan import NO_SETS, Plan
from framekiln.planning.step import Step
from framekiln.runtime.run.request import RunUnits
from framekiln.runtime.second_pass.second_pass import UnitRows, columns_of, unit_rows
from framekiln.runtime.second_pass.table_steps import Tables
from framekiln.selection.rows import Rows
from framekiln.selection.selection import read_selection

MakePlan = Callable[[RowSets, Sequence[str]], Plan]
"""Makes the plan with sets of rows; names: some steps and those that they read, none: all steps."""


@dataclass(frozen=True, kw_only=True)
class RowSettling:
    """Finds the rows of one run's conditions."""

    store: Store
    make_plan: MakePlan
    find_units: Callable[[Plan], RunUnits]
    writes: bool  # whether sets of rows are written into the output; a preview writes none

    def settle(self, plan: Plan, selection: str | None, provide: Callable[[Sequence[Step], Plan], bool]) -> Plan:
        """Return the plan with the rows of each condition.

        Args:
            plan: the plan, without sets of rows.
            selection: the value of `--rows`; None: not given.
            provide: gets steps with conditions on tables, and the plan of the steps that write these. It returns
                whether the tables exist then; otherwise the conditions stay open.

        Raises:
            ConfigError: there is no such selection. Or a table is written over all files, and this run is a shard.
        """
        sets = self._begin(selection)
        plan = plan if sets is NO_SETS else self.make_plan(sets, ())
        while (found := self._find_next(plan, sets)) is not None and provide(*found):
            steps, needed = found
            units = self.find_units(needed)
            rows = unit_rows(needed, Ledger(self.store), units.all, units.wanted)
            for step in steps:
                chosen = keep(self.store, choose(self.store, step.condition, needed, rows), write=self.writes)
                sets = replace(sets, settled={**sets.settled, step.name: chosen})
            plan = self.make_plan(sets, ())
        return plan

    def is_finished(self, _: Sequence[Step], needed: Plan) -> bool:
        """Return whether the steps of a plan have written all columns and tables."""
        units = self.find_units(needed)
        rows = unit_rows(needed, Ledger(self.store), units.all, units.wanted)
        tables = [Tables(each, needed, self.store) for each in needed.second]
        return len(rows) == len(units.all) and not any(table.missing(rows) for table in tables)

    def _begin(self, selection: str | None) -> RowSets:
        """Return the sets before any table is read: the rows of `--rows`, for steps that lack some of them."""
        if selection is None:
            return NO_SETS
        rows = keep(self.store, read_rows(self.store, selection), write=self.writes)
        plan, ledger = self.make_plan(NO_SETS, ()), Ledger(self.store)
        units = self.find_units(plan).all
        whole = {
            step.name
            for step in plan.steps
            if not step.first_pass or all(ledger.has((plan.decode.folder, step.folder), unit.name) for unit in units)
        }
        return RowSets(among=rows, whole=frozenset(whole))

    def _find_next(self, plan: Plan, sets: RowSets) -> tuple[Sequence[Step], Plan] | None:
        """Return the steps that can be settled now by one reading of the media; empty: none."""
        for step in plan.open:
            _check_tables(step, plan)
        stages = {step.name: step.stage for step in plan.steps}
        makers = {step.name: [plan.producers[key] for key in step.stage.reads_besides] for step in plan.open}
        # with producers of their optional columns: they are the whole plan's
        needed = {name: sorted(with_producers(direct, stages, plan.producers)) for name, direct in makers.items()}
        steps = [step for step in plan.open if not self.make_plan(sets, needed[step.name]).open]
        if not steps:
            return None
        return steps, self.make_plan(sets, sorted({name for step in steps for name in needed[step.name]}))


def _check_tables(step: Step, plan: Plan) -> None:
    written = {table for each in plan.second for table in each.stage.tables}
    if missing := step.condition.tables - {FRAMES} - written:
        raise ConfigError(
            f"The condition of step {step.name!r} reads the table {min(missing)!r}, which is written over all files; "
            "run without --shard, or leave the condition out.",
            code="FK-CONDITION-SHARD",
        )


def choose(store: Store, condition: Condition, plan: Plan, units: Sequence[UnitRows]) -> pa.Table:
    """Return the keys of the rows that meet a condition, from columns and tables of a plan's finished steps."""
    columns = columns_of(plan, [*SOURCE.names, *sorted(condition.names)])
    frames = [table for unit in units if (table := unit.read(store, columns)).num_columns]
    schema = pa.schema([item for own in columns.values() for item in own])
    tables = {FRAMES: pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in frames)])}
    for step in plan.second:
        owner = Tables(step, plan, store)
        tables |= {name: owner.read(name, tuple(units)) for name in step.stage.tables}
    rows = Rows(store, tables)
    if condition.where is not None:
        rows.register_all(condition.where)
    asked = [condition.where.text] if condition.where else []
    relation = rows.join([*asked, *(["shot"] if condition.on is not None and condition.on.shots else [])])
    if condition.where is not None:
        relation = rows.check("where", lambda: relation.filter(asked[0]))
    if condition.on is not None and condition.on.shots:
        relation = relation.project(
            "*, abs(row_number() OVER (PARTITION BY media_id, shot ORDER BY frame_index) "
            "- (count(*) OVER (PARTITION BY media_id, shot) + 1) / 2.0) AS off_middle"
        )
        best = "sharpness DESC NULLS LAST, " if condition.on.shots == "sharpest" else ""
        order = f"PARTITION BY media_id, shot ORDER BY {best}off_middle, frame_index"
        relation = relation.project(f"*, row_number() OVER ({order}) AS place").filter("place = 1")
    chosen: pa.Table = relation.project(", ".join(KEYS)).order(", ".join(KEYS)).to_arrow_table()
    return chosen


def read_rows(store: Store, selection: str) -> pa.Table:
    """Return the keys of a saved selection or Parquet file. Raises ConfigError: it is missing, or has no keys."""
    if not selection.endswith(".parquet"):
        return read_selection(store, selection).rows
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(expand(selection), columns=list(KEYS))
        return table.cast(pa.schema([SOURCE.field(key) for key in KEYS]))
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise ConfigError(
            f"--rows: {selection!r} is no Parquet file with the columns {' and '.join(KEYS)} "
            f"({str(error).splitlines()[0].rstrip('.')}); give one, or the name of a saved selection.",
            code="FK-ROWS-FILE",
        ) from error


def keep(store: Store, rows: pa.Table, *, write: bool = True) -> RowSet:
    """Write a set of rows into the output, named by its content hash, and return it."""
    rows = rows.sort_by([(key, "ascending") for key in KEYS]).combine_chunks()
    digest = hashlib.sha256()
    for key in KEYS:
        digest.update("\0".join(map(str, rows[key].to_pylist())).encode(errors="surrogatepass") + b"\1")
    path = f"{ROW_SETS}/{digest.hexdigest()[:16]}.parquet"
    if write and not _holds(store, path, rows):
        store.write_table(path, rows.replace_schema_metadata(None))
    return RowSet(path=path, digest=digest.hexdigest()[:16], count=rows.num_rows, keys=None if write else rows)


def _holds(store: Store, path: str, rows: pa.Table) -> bool:
    with suppress(DamagedError, FileNotFoundError):
        return bool(store.read_table(path).equals(rows))
    return False
