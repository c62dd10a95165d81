"""The run that the report's times are of: the one that did most, or another that is asked for.

An output holds the records of every run into it. The last one may have added three files to a million.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from framekiln.contract.errors import DamagedError, OutputError
from framekiln.contract.row_errors import DECODE
from framekiln.output.object_store import Store
from framekiln.profiling.record_log import CALLS, batches, runs
from framekiln.profiling.records import PACKET
from framekiln.profiling.run_profile import (
    choose_run,
    missing_rows,
    profile_of,
    run_of,
    stored_profile,
    stored_saturated,
    targets_of,
)
from framekiln.reporting.kit.formatting import count, duration, moment, number
from framekiln.runtime.run.progress import FINISHED


@dataclass(kw_only=True)
class RunWork:
    """The work of one run, by its records."""

    name: str
    began: float = float("inf")  # seconds since the epoch
    ended: float = 0.0
    busy: float = 0.0  # seconds inside packets, over all processes
    frames: int = 0  # decoded

    @property
    def summary(self) -> str:
        """The run in a few words, with its name for --run."""
        return (
            f"{self.name}: {moment(self.began)}, {count(self.frames, 'frame')} decoded, {duration(self.busy)} of work"
        )


@dataclass(frozen=True, kw_only=True)
class TimedRun:
    """Figures of one run, in the forms of run.json."""

    name: str | None  # None: of the run in run.json, which kept no records
    started: str  # date and time
    figures: Mapping[str, Any]
    profile: Mapping[str, Any]
    speed: str  # empty if it decoded nothing
    is_last: bool = True  # it is the run in run.json
    others: tuple[RunWork, ...] = field(default=())  # other runs with records, the one that did most first


def timed_run(store: Store, record: Mapping[str, Any], wanted: str | None = None) -> TimedRun:
    """Return the run to show: the wanted one, else the one with the most seconds of work.

    The run in run.json is shown if the other's records are missing or damaged.

    Raises:
        OutputError: there is no such run, or no row came out of it.
    """
    own, work = run_of(store, record), _read_work(store)
    if wanted is not None:
        name: str | None = choose_run(store, wanted)
    elif work and (own in work or not record["figures"]):  # a run that found all rows done has none
        name = max(work.values(), key=lambda run: (run.busy, run.name == own)).name
    else:
        name = own
    if name is not None and (name != own or (name in work and record["state"] != FINISHED)):
        with suppress(*(() if wanted else (DamagedError,))):  # samples of its machines may be damaged
            return _read_records(store, record, work, name, is_last=name == own)
        name = own
    began = moment(datetime.fromisoformat(record["started"]).timestamp())
    figures, profile = record["figures"], stored_profile(record)
    if speed := _describe_speed((figures.get(DECODE) or {}).get("rows", 0), record["seconds"]):
        speed += ", start-up included"
    return TimedRun(name=name, started=began, figures=figures, profile=profile, speed=speed, others=_rank(work, name))


def _rank(work: Mapping[str, RunWork], name: str | None) -> tuple[RunWork, ...]:
    return tuple(sorted((run for run in work.values() if run.name != name), key=lambda run: -run.busy))


def _read_records(
    store: Store, record: Mapping[str, Any], work: Mapping[str, RunWork], name: str, *, is_last: bool
) -> TimedRun:
    """Read an earlier or unfinished run from its records alone."""
    run = work.get(name)
    profile = profile_of(store, name, targets_of(record), stored_saturated(record, name)) if run else None
    if run is None or profile is None:
        raise missing_rows(store, name)
    return TimedRun(
        name=name,
        started=moment(run.began),
        figures={step.step: step.totals.to_dict() | {"errors": None} for step in profile.steps},
        profile=profile.to_dict(),
        speed=_describe_speed(run.frames, run.ended - run.began),
        is_last=is_last,
        others=_rank(work, name),
    )


def _read_work(store: Store) -> dict[str, RunWork]:
    """Return the runs with rows in records that can be read, by name."""
    result: dict[str, RunWork] = {}
    for name in runs(store):
        run = RunWork(name=name)
        with suppress(DamagedError, OutputError, OSError, KeyError, ValueError):  # gone, or of another version
            for table in batches(store, CALLS, name, columns=("kind", "step", "rows", "started", "seconds")):
                _add_packets(run, table)
            if run.busy and run.began < run.ended:
                result[name] = run
    return result


def _add_packets(run: RunWork, table: Any) -> None:
    packets = table.filter(pc.and_(pc.equal(table["kind"], PACKET), pc.greater(table["rows"], 0)))
    if packets.num_rows:
        run.busy += pc.sum(packets["seconds"]).as_py()
        run.began = min(run.began, pc.min(packets["started"]).as_py())
        run.ended = max(run.ended, pc.max(pc.add(packets["started"], packets["seconds"])).as_py())
        run.frames += pc.sum(packets.filter(pc.equal(packets["step"], DECODE))["rows"]).as_py() or 0


def _describe_speed(frames: int, seconds: float) -> str:
    """Return the rate of a run from its start to its end; empty if it decoded nothing."""
    if not frames or not seconds:
        return ""
    return f"{count(frames, 'frame')} in {duration(seconds)}: {number(frames / seconds)} a second"
