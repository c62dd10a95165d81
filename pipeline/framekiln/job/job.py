"""A run from end to end: list, plan, take the lease, find what is missing, compute it, and return the result.

Nothing is computed here. The ledger shows the remaining work, and the engine does it. Ray starts only if work is left.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count

from framekiln.contract.errors import DamagedError, StartError
from framekiln.contract.stage import Scope
from framekiln.engine.base import Engine, RunContext
from framekiln.engine.choice import choose, make_engine, started_ahead
from framekiln.engine.ray.turn import interrupts_deferred, own_turn
from framekiln.job.interim import Interim
from framekiln.job.outcome import RunSoFar
from framekiln.media.discovery.listing import list_inputs
from framekiln.media.files import MediaFile
from framekiln.output.lease import Lease
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.output.recognise import check_may_become_output
from framekiln.output.unit_table import write_units
from framekiln.planning.condition import RowSets
from framekiln.planning.machine import examine
from framekiln.planning.plan import NO_SETS, Plan, make_plan
from framekiln.planning.processes.resources import ROOMY, Node, this_machine
from framekiln.planning.processes.waves import leave_finished
from framekiln.planning.step import Step
from framekiln.profiling.record_log import gather
from framekiln.profiling.records import Death, Event, now
from framekiln.profiling.stats.progress import RunTotals
from framekiln.profiling.step_work import Recorder
from framekiln.runtime.check.mending import Mending
from framekiln.runtime.run import change_report
from framekiln.runtime.run.carried_results import carry_over
from framekiln.runtime.run.record import read_earlier
from framekiln.runtime.run.request import RunFiles, RunRequest, RunUnits
from framekiln.runtime.run.result import RunResult, Workload
from framekiln.runtime.run.retry import Retry, find_unreached
from framekiln.runtime.second_pass.second_pass import Assembly, SecondPass, refuse_foreign, sweep, unit_rows
from framekiln.runtime.second_pass.table_steps import Tables

Provide = Callable[[Sequence[Step], Plan], bool]  # see `row_sets.RowSettling.settle`
_ATTEMPTS = 3  # tries; a disk that has damaged new files three times will do so again


class Job:
    """One run into one output."""

    def __init__(
        self,
        request: RunRequest,
        watch: Callable[[RunTotals], None] = lambda _: None,
        on_plan: Callable[[Workload], None] = lambda _: None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Keep the request; read nothing yet.

        `watch` gets totals while steps run, `on_plan` the work before it starts, and `on_wait` sentences about the
        start.

        Raises ConfigError: the request has no input or no output.
        """
        request.require("input", "output")
        request.profile.network.use()
        self._request, self._watch, self._on_plan, self._on_wait = request, watch, on_plan, on_wait
        self.store = Store(request.output)
        self._totals = RunTotals()
        self.media: Sequence[MediaFile] = ()  # files that `preview` has found
        self._interim: Interim | None = None

    def run(self) -> RunResult:
        """Compute what is missing from the output, and write run.json and the report there.

        Raises:
            UserError: input, output, a name, a setting or the machines are wrong, and nothing was started. Or the
                output cannot be written any more, or belongs to another run.
            ContractError: a stage broke its promise.
        """
        self._started = now()
        check_may_become_output(self.store)  # before inputs are listed, which may take minutes
        with ExitStack() as self._stack:
            request = self._request
            self._ahead = self._stack.enter_context(started_ahead(request))
            self._nodes = [this_machine()] if request.address is None else self._join_ray()
            files = RunFiles(request=request, listing=list_inputs(request.inputs, request.output, self._on_wait))
            plan = self._prepare()
            self._files = files.identified(self.store, self._on_wait, keep=True)
            mending = Mending(self.store, plan, self._list_owners(plan), self._on_wait)
            mending.remove_known()
            attempts = count(1)
            while True:
                try:
                    plan = self._settle(plan, self._compute_needed)
                    owners = self._list_owners(plan)
                    mending = Mending(self.store, plan, owners, self._on_wait)
                    self._mark_failures(plan)
                    work = self._look(plan, owners)
                    if work.left:
                        with self._open(work, owners) as (engine, interim):
                            deletable = self._files.deletable(self.store)
                            rows = interim.make_way(owners, deletable)
                            engine.write(owners, rows, self._lease.check)
                            sweep(self.store, owners, rows, deletable)  # tables of stages are replaced
                    return self._make_so_far(work).conclude()
                except DamagedError:
                    if next(attempts) == _ATTEMPTS or not mending.remove_damaged():
                        raise

    def preview(self, plan: Plan) -> tuple[change_report.Changes, Sequence[change_report.Outlook], tuple[str, str]]:
        """Return a plan's remaining work and the reasons, with the engine and its reason; write nothing.

        Raises InputError: there is no input. Raises OutputError: the output is a file, or a folder of other things.
        """
        from framekiln.runtime.run.rows_left import count_rows  # loads OpenCV, which a run does not need

        check_may_become_output(self.store)
        plan, request, self._nodes = self._drop_dataset_steps(plan), self._request, [ROOMY]
        files = RunFiles(request=request, listing=list_inputs(request.inputs, request.output, self._on_wait))
        self._files = files.identified(self.store, self._on_wait, keep=False)
        self.media = self._files.selected
        units = self._files.units(self.store, plan.decode.workers)
        changes = change_report.find_changes(self.store, self._files.listing, units.fresh)
        known = self._settle(plan)
        outlook = count_rows(change_report.outlooks(known, self.store, units, changes), known, self.store, units)
        return changes, outlook, choose(request, plan, units.all)

    def _join_ray(self) -> Sequence[Node]:
        self._stack.enter_context(own_turn(self._on_wait))
        with interrupts_deferred():
            from framekiln.engine.ray.session import session
        return self._stack.enter_context(session(self._request.address, self._on_wait))

    def _prepare(self) -> Plan:
        """Return the plan, which fits the machines, and take the output's lease, which opens `store` for this run."""
        request, here = self._request, self._request.address is None
        plan = self._make_plan(True, NO_SETS)
        refusal, notes = examine(plan, request.options, self._nodes, here=here)
        if refusal is not None:
            raise refusal
        profilers = request.profilers.check(plan, self.store, here=here)
        for note in filter(None, (*notes, profilers)):
            self._on_wait(note)
        self.store.prepare()
        refuse_foreign(self.store, self._list_owners(plan))
        self._lease = self._stack.enter_context(Lease(self.store, request.shard, on_wait=self._on_wait))
        self.store = self.store.of_run(self._lease.run)
        return plan

    def _make_plan(self, checks: bool, sets: RowSets, steps: Sequence[str] = ()) -> Plan:
        """Return the plan of the request with sets of rows, for some steps and those that they read, or for all."""
        request = self._request
        options = replace(request.options, stages=tuple(steps)) if steps else request.options
        arguments = request.pipeline, request.profile, options, self._nodes
        plan = make_plan(*arguments, sets=sets, refuse_idle=not steps, check_weights=checks)
        return self._drop_dataset_steps(plan)

    def _settle(self, plan: Plan, provide: Provide | None = None) -> Plan:
        """Return the plan with each condition's rows; `provide` runs the steps that write the tables of conditions.

        Without `provide` nothing is computed or written; conditions stay open if tables are missing.
        """
        rows = self._request.options.rows
        if plan.open or rows is not None:
            from framekiln.job.row_sets import RowSettling  # loads DuckDB, which few runs need

            settling = RowSettling(
                store=self.store,
                make_plan=partial(self._make_plan, provide is not None),
                find_units=partial(self._find_units, writes=provide is not None),
                writes=provide is not None,
            )
            plan = settling.settle(plan, rows, provide or settling.is_finished)
        return change_report.with_others(plan, self.store)

    def _compute_needed(self, steps: Sequence[Step], plan: Plan) -> bool:
        """Run unfinished steps that decide which rows other steps compute."""
        plan = change_report.with_others(plan, self.store)
        tables = [Tables(each, plan, self.store) for each in plan.second]
        names, decided = (", ".join(each.name for each in some) for some in (plan.steps, steps))
        work = self._look(plan, tables, first=f"First {names}, which decide what {decided} computes.")
        if work.left:
            with self._open(work, tables, tables=False) as (engine, _):
                engine.write(tables, work.finished(self.store), self._lease.check)
        return True

    def _make_so_far(self, work: Workload) -> RunSoFar:
        return RunSoFar(store=self.store, request=self._request, work=work, figures=self._totals, started=self._started)

    @contextmanager
    def _open(
        self, work: Workload, owners: Sequence[SecondPass], *, tables: bool = True
    ) -> Iterator[tuple[Engine, Interim]]:
        """Yield the chosen engine after the first pass, and what is written meanwhile; gather records at the end."""
        request, (name, reason) = self._request, self._engine
        self._interim = Interim(self._make_so_far(work), owners, self._lease, tables=tables)
        self._on_wait(reason)
        if name == "ray" and request.address is None:
            self._on_wait("Starting Ray on this machine, which takes some seconds.")
            try:
                self._join_ray()
            except StartError as error:
                if request.engine != "auto" or request.profilers.nsight:
                    raise
                self._on_wait(f"{error} This run goes on with the local engine.")
                name = "local"
        self._totals.engine = name
        plan = replace(work.plan, waves=tuple(work.waves))
        context = RunContext(plan=plan, store=self.store, on_events=self._on_events, profilers=request.profilers)
        with self._interim as interim:
            try:
                with closing(make_engine(name, context, self._ahead, self._lease.end_run)) as engine:
                    interim.start()
                    engine.compute(work.pending, self._lease.check)
                    yield engine, interim
            finally:
                gather(self.store, (self._lease.run, *self._lease.taken_over))

    def _on_events(self, events: list[Event]) -> None:
        for death in (event for event in events if isinstance(event, Death)):
            Recorder.of(self.store).bury(death)
        self._totals.add(events)
        self._watch(self._totals)

    def _find_units(self, plan: Plan, *, writes: bool = True) -> RunUnits:
        """Return the files' units. If a unit lost files and the run `writes`, its other files become their own unit."""
        units = self._files.units(self.store, plan.decode.workers)
        if writes and carry_over(self.store, units.known, self._on_wait):
            return self._files.units(self.store, plan.decode.workers)
        return units

    def _drop_dataset_steps(self, plan: Plan) -> Plan:
        """Return the plan of a shard: a final run without shards computes the DATASET steps."""
        if self._request.shard is None:
            return plan
        return replace(plan, second=tuple(step for step in plan.second if step.stage.scope is not Scope.DATASET))

    def _mark_failures(self, plan: Plan) -> None:
        """Mark what the request retries; without, the files that were out of reach for the run before."""
        if (which := self._request.retry) is not None:
            change_report.refuse_changed(self.store, plan)
        elif (which := find_unreached(read_earlier(self.store))) is None:
            return
        else:
            plan = replace(plan, first=())  # also files that new steps have not seen
        units = self._find_units(plan)
        retry = Retry(self.store, plan, unit_rows(plan, Ledger(self.store), units.known, units.wanted), which)
        retry.mark(units.known, self._list_owners(plan))
        self._on_wait(retry.summary())

    def _look(self, plan: Plan, owners: Sequence[SecondPass], *, first: str = "") -> Workload:
        """Find and report the remaining work. `first` explains a pass whose columns enter no table."""
        files, units = self._files, self._find_units(plan)
        changes = change_report.find_changes(self.store, files.listing, units.fresh)
        rows = unit_rows(plan, Ledger(self.store), units.all, units.wanted)
        finished = {unit.unit for unit in rows}
        pending = [unit for unit in units.all if unit.name not in finished]
        left = bool(pending) or any(owner.missing(rows) for owner in owners)
        outlook = change_report.outlooks(plan, self.store, units, changes)
        write_units(self.store, units.fresh, units.known)
        change_report.remember(self.store, plan)
        swept = 0 if left or first else sweep(self.store, owners, rows, files.deletable(self.store))
        earlier, kept = {} if first else read_earlier(self.store) or {}, {step.name for step in plan.first}
        work = Workload(
            plan=plan,
            waves=leave_finished(plan.waves, {step.step for step in outlook if not step.todo}),
            nodes=self._nodes,
            media=files.selected,
            wanted=units.wanted,
            units=units.all,
            pending=pending,
            left=left,
            changed=left or swept > 0,
            files=changes,
            outlook=outlook,
            leaving=[name for wave in earlier.get("waves", ()) for name in wave if name not in kept],
        )
        if first and not left:
            return work
        self._engine = choose(self._request, plan, pending)
        if left and self._engine[0] == "local":
            work = replace(work, plan=replace(plan, limits=""), has_local_engine=True)
        self._totals.begin(pending, len(work.waves))
        if first:
            self._on_wait(first)
        self._on_plan(work)
        return work

    @property
    def extent(self) -> str:
        """Return a sentence on the tables that an interrupted run has written."""
        return self._interim.extent if self._interim is not None else "What is finished is kept"

    def _list_owners(self, plan: Plan) -> list[SecondPass]:
        return [Assembly(plan, self.store), *(Tables(step, plan, self.store) for step in plan.second)]
