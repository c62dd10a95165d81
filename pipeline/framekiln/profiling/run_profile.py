"""A run's profile, computed from its records: for run.json, for the report and for `framekiln profile`.

An output holds the records of every run into it. The last run may have added three files to a million, so the run with
the most work is shown.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow.compute as pc

from framekiln.contract.errors import DamagedError, OutputError, did_you_mean
from framekiln.contract.output_names import ERRORS
from framekiln.contract.row_errors import DECODE
from framekiln.contract.words import counted
from framekiln.output.lease import active_runs
from framekiln.output.object_store import Store
from framekiln.output.recognise import check_is_output
from framekiln.planning.limits import Limit, run_targets
from framekiln.planning.processes.placement import Room
from framekiln.profiling.advice import Advice, bottleneck
from framekiln.profiling.record_log import CALLS, NODES, batches, began, read, runs
from framekiln.profiling.records import DEATH, PACKET
from framekiln.profiling.stats.speed import others_use
from framekiln.profiling.stats.steps import StepStatistics, step_statistics
from framekiln.profiling.targets import TargetResult, compare_targets, gpu_figures

_OTHER_RUNS = 3  # most runs that a message names


@dataclass(frozen=True, kw_only=True)
class RunProfile:
    """One run's statistics, targets and advice."""

    run: str
    steps: Sequence[StepStatistics]
    bottleneck: Advice
    targets: Sequence[TargetResult] = ()
    rooms: Mapping[str, Room] = field(default_factory=dict)  # planned processes of each step
    lost: Mapping[str, int] = field(default_factory=dict)  # processes that died at work, by node

    def to_dict(self) -> dict[str, Any]:
        """Return the `throughput` of run.json."""
        return {
            "run": self.run,
            "verdict": asdict(self.bottleneck),
            "targets": [asdict(target) for target in self.targets],
            "rooms": {step: vars(room) for step, room in self.rooms.items()},
            "lost": dict(self.lost),
            "steps": {step.step: step.to_dict() for step in self.steps},
        }


def profile_of(
    store: Store, run: str, targets: Sequence[Limit] = (), rooms: Mapping[str, Room] | None = None
) -> RunProfile | None:
    """Return the profile of a run from its records so far; None before any step's first row."""
    nodes, calls = read(store, NODES, run), read(store, CALLS, run)
    if not (steps := step_statistics(calls, nodes)):
        return None
    results = compare_targets(targets, gpu_figures(calls, nodes), steps)
    advice = bottleneck(steps, rooms or {}, others_use(calls, nodes))
    dead = calls.filter(pc.equal(calls["kind"], DEATH))
    lost = Counter(worker.rpartition(":")[0] for worker in pc.unique(dead["worker"]).to_pylist())
    return RunProfile(run=run, steps=steps, bottleneck=advice, targets=results, rooms=rooms or {}, lost=lost)


def missing_note(lost: Mapping[str, int]) -> str:
    """Return sentences on records lost with dead processes, by node; empty if none were."""
    nodes = ", ".join(f"{node} ({counted(count, 'process', 'processes')})" for node, count in lost.items())
    return nodes and (
        f"Last records of {nodes} are missing: a process that dies loses up to 0.5 s of them in a folder, 10 s in a "
        "bucket. Tables are complete; these figures lack that time."
    )


def run_of(store: Store, record: Mapping[str, Any]) -> str | None:
    """Return the run that a run.json describes, if it kept records."""
    return record["run"] if record.get("run") in runs(store) else None


def targets_of(record: Mapping[str, Any]) -> list[Limit]:
    """Return the targets in a run.json."""
    return run_targets((record.get("profile") or {}).get("targets") or ())


def stored_rooms(record: Mapping[str, Any], run: str) -> Mapping[str, Room]:
    """Return the planned processes of each step, if a run.json describes that run."""
    throughput = record.get("throughput") or {}
    known = throughput.get("rooms") or {} if throughput.get("run") == run else {}
    return {step: Room(**room) for step, room in known.items()}


def missing_records(store: Store) -> OutputError:
    """Return the error of an output without any records. Raises OutputError: it is no output."""
    if active_runs(store):
        return OutputError(
            f"The run into {store.root!r} has just begun, and no process has done anything yet (Ray takes some seconds "
            "to start); look again soon.",
            code="FK-RUN-STARTING",
        )
    check_is_output(store)
    return OutputError(
        f"There are no records of a run in {store.root!r}: it was stopped before its first packet, or its folder "
        "`profile` was removed; run something into it first.",
        code="FK-NO-RECORDS",
    )


def missing_rows(store: Store, run: str) -> OutputError:
    """Return the error of a run with records but no statistics; it names other runs that have some."""
    if run in active_runs(store):
        return OutputError(
            f"No packet has gone through a step of run {run} in {store.root!r} yet; look again later.",
            code="FK-NO-ROWS-YET",
        )
    problem = f"Run {run} in {store.root!r} has ended without a row"
    problem += f" (see {store.url(ERRORS)} for what failed)" if store.names(ERRORS) else ""
    others = [f"--run {other}" for other in read_work(store) if other != run]
    fix = f"look at another one by {', '.join(others[:_OTHER_RUNS])}" if others else "nor has another run any"
    return OutputError(f"{problem}; {fix}.", code="FK-NO-ROWS")


@dataclass(kw_only=True)
class RunWork:
    """The work of one run, from its records."""

    name: str
    began: float = float("inf")  # seconds since the epoch
    ended: float = 0.0
    busy: float = 0.0  # seconds inside packets, over all processes
    frames: int = 0  # rows decoded
    steps: set[str] = field(default_factory=set)


def read_work(store: Store) -> dict[str, RunWork]:
    """Return the runs with at least one row, by name, without runs with damaged records."""
    result: dict[str, RunWork] = {}
    for name in runs(store):
        run = RunWork(name=name)
        with suppress(DamagedError, OutputError, OSError, KeyError, ValueError):  # removed, or of another version
            for table in batches(store, CALLS, name, columns=("kind", "step", "rows", "started", "seconds")):
                packets = table.filter(pc.and_(pc.equal(table["kind"], PACKET), pc.greater(table["rows"], 0)))
                if packets.num_rows:
                    run.steps |= set(pc.unique(packets["step"]).to_pylist())
                    run.busy += pc.sum(packets["seconds"]).as_py()
                    run.began = min(run.began, pc.min(packets["started"]).as_py())
                    run.ended = max(run.ended, pc.max(pc.add(packets["started"], packets["seconds"])).as_py())
                    run.frames += pc.sum(packets.filter(pc.equal(packets["step"], DECODE))["rows"]).as_py() or 0
            if run.busy and run.began < run.ended:
                result[name] = run
    return result


def most_work(work: Mapping[str, RunWork]) -> str | None:
    """Return the run with the most work; None if no run has rows."""
    return max(work, key=lambda name: (work[name].busy, work[name].began), default=None)


def choose_run(store: Store, name: str | None, warn: Callable[[str], None] = lambda _: None) -> str:
    """Return the run of this name, else the run with the most work, else the run that began last.

    `warn` gets a sentence for each run with damaged records, which might be that run. Raises DamagedError: the records
    of that run, or of all runs, are damaged. Raises OutputError: there are no records, or none of that run.
    """
    starts: dict[str, float] = {}
    damaged: dict[str, DamagedError] = {}
    for run in runs(store):
        try:
            if (first := began(store, run)) is not None:
                starts[run] = first
        except DamagedError as error:
            damaged[run] = error
    if damaged and (name in damaged or not starts):
        raise damaged[name if name in damaged else min(damaged)]
    for damage in damaged.values() if name is None else ():
        warn(f"Skipped a run: {damage}")
    if not starts:
        raise missing_records(store)
    if name is not None and name not in starts:
        problem = f"There are no records of a run {name!r} in {store.root!r}.{did_you_mean(name, starts)}"
        raise OutputError(problem, code="FK-UNKNOWN-RUN")
    most = most_work(read_work(store)) if name is None and len(starts) > 1 else None
    return name or most or max(starts, key=lambda run: starts[run])
