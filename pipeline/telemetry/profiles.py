"""What a run's records say, put together: for run.json, for the report and for `framemill profile`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc
from pydantic import ValidationError

from pipeline.errors import DamagedError, OutputError, did_you_mean
from pipeline.manifest import Targets
from pipeline.storage import Store
from pipeline.telemetry import nodes
from pipeline.telemetry.absence import no_records
from pipeline.telemetry.measures import StepMeasures, measure
from pipeline.telemetry.records import to_table
from pipeline.telemetry.streams import CALLS, NODES, batches, gather, read, runs
from pipeline.telemetry.targets import Cards, Judged, judged
from pipeline.telemetry.verdict import Verdict, verdict

READERS = {CALLS: to_table, NODES: nodes.to_table}
"""By kind of records, what makes a table of their lines."""


@dataclass(frozen=True, kw_only=True)
class RunProfile:
    """One run's figures."""

    run: str
    steps: Sequence[StepMeasures]
    verdict: Verdict
    targets: Sequence[Judged] = ()
    full: Collection[str] = ()  # steps for another of whose workers no core was left

    def to_dict(self) -> dict[str, Any]:
        """As JSON knows it."""
        return {
            "run": self.run,
            "verdict": asdict(self.verdict),
            "targets": [asdict(one) for one in self.targets],
            "full": sorted(self.full),
            "steps": {step.step: step.to_dict() for step in self.steps},
        }


def profile_of(store: Store, run: str, targets: Targets | None = None, full: Collection[str] = ()) -> RunProfile | None:
    """A run's figures, from its records as far as they are there; None where no packet went through a step.

    Args:
        store: the output.
        run: which of its runs.
        targets: what the figures are held against; None for nothing.
        full: steps for another of whose workers no core was left, by `pipeline.placing.full`.
    """
    machines = read(store, NODES, run, nodes.to_table)
    calls = read(store, CALLS, run, to_table)
    if not (steps := measure(calls, machines)):
        return None
    aims = judged(targets, Cards.of(calls, machines), steps) if targets else []
    return RunProfile(run=run, steps=steps, verdict=verdict(steps, full), targets=aims, full=full)


def gathered(store: Store, wanted: Sequence[str]) -> None:
    """Turn the streams of runs that have ended into tables."""
    gather(store, wanted, READERS)


def chosen_run(store: Store, asked: str | None, say: Callable[[str], None] = lambda _: None) -> str:
    """The run that was asked for, else the one that began last.

    Args:
        store: the output.
        asked: its name; None for the last one.
        say: told, in a sentence, of each other run whose records are damaged, and which may have been the last.

    Raises:
        DamagedError: the records of that one, or of all, are damaged.
        OutputError: there is none, or not that one.
    """
    known: dict[str, float] = {}
    damaged: dict[str, DamagedError] = {}
    for run in runs(store):
        try:
            if (began := _began(store, run)) is not None:
                known[run] = began
        except DamagedError as error:
            damaged[run] = error
    if damaged and (asked in damaged or not known):
        raise damaged[asked if asked in damaged else min(damaged)]
    for why in damaged.values() if asked is None else ():
        say(f"A run is left out: {why}")
    if not known:
        raise OutputError(no_records(store))
    if asked is not None and asked not in known:
        raise OutputError(f"There are no records of a run {asked!r} in {store.root!r}.{did_you_mean(asked, known)}")
    return asked or max(known, key=lambda run: known[run])


def _began(store: Store, run: str) -> float | None:
    pieces = batches(store, CALLS, run, to_table, columns=("started",))
    return min((pc.min(one["started"]).as_py() for one in pieces if one.num_rows), default=None)


def targets_of(record: Mapping[str, Any]) -> Targets:
    """What the profile of a run.json aims at; nothing where another version wrote something else."""
    with suppress(ValidationError):
        return Targets.model_validate((record.get("profile") or {}).get("targets") or {})
    return Targets()


def full_of(record: Mapping[str, Any], run: str) -> Collection[str]:
    """Steps for another of whose workers no core was left, where a run.json tells it of that run."""
    known = told(record)
    return tuple(known.get("full") or ()) if known.get("run") == run else ()


def told(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figures in a run.json; empty in those of versions that kept no records, and of runs without a packet."""
    return record.get("throughput") or {}
