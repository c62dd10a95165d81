"""Runs of an output by how much they did: the profile, the timeline and the report all show the one that did most.

An output holds the records of every run into it. The last one may have added three files to a million.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow.compute as pc

from framekiln.contract.errors import DamagedError, OutputError, did_you_mean
from framekiln.contract.row_errors import DECODE
from framekiln.output.object_store import Store
from framekiln.profiling.record_log import CALLS, batches, began, runs
from framekiln.profiling.records import PACKET
from framekiln.profiling.run_profile import missing_records


@dataclass(kw_only=True)
class RunWork:
    """The work of one run, by its records."""

    name: str
    began: float = float("inf")  # seconds since the epoch
    ended: float = 0.0
    busy: float = 0.0  # seconds inside packets, over all processes
    frames: int = 0  # decoded


def read_work(store: Store) -> dict[str, RunWork]:
    """Return the runs out of which a row came, by name; those with damaged records are left out."""
    result: dict[str, RunWork] = {}
    for name in runs(store):
        run = RunWork(name=name)
        with suppress(DamagedError, OutputError, OSError, KeyError, ValueError):  # gone, or of another version
            for table in batches(store, CALLS, name, columns=("kind", "step", "rows", "started", "seconds")):
                packets = table.filter(pc.and_(pc.equal(table["kind"], PACKET), pc.greater(table["rows"], 0)))
                if packets.num_rows:
                    run.busy += pc.sum(packets["seconds"]).as_py()
                    run.began = min(run.began, pc.min(packets["started"]).as_py())
                    run.ended = max(run.ended, pc.max(pc.add(packets["started"], packets["seconds"])).as_py())
                    run.frames += pc.sum(packets.filter(pc.equal(packets["step"], DECODE))["rows"]).as_py() or 0
            if run.busy and run.began < run.ended:
                result[name] = run
    return result


def most_work(work: Mapping[str, RunWork]) -> str | None:
    """Return the run that did most; None where no run has rows."""
    return max(work, key=lambda name: (work[name].busy, work[name].began), default=None)


def choose_run(store: Store, name: str | None, warn: Callable[[str], None] = lambda _: None) -> str:
    """Return the run of this name, or the one that did most; where none has rows the run that began last.

    `warn` gets a sentence for each run with damaged records, as it may have been the one. Raises DamagedError: the
    records of that run, or of all runs, are damaged. Raises OutputError: there are no records, or none of that run.
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
    for problem in damaged.values() if name is None else ():
        warn(f"A run is left out: {problem}")
    if not starts:
        raise missing_records(store)
    if name is not None and name not in starts:
        raise OutputError(
            f"There are no records of a run {name!r} in {store.root!r}.{did_you_mean(name, starts)}",
            code="FK-UNKNOWN-RUN",
        )
    most = most_work(read_work(store)) if name is None and len(starts) > 1 else None
    return name or most or max(starts, key=lambda run: starts[run])
