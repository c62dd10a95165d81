"""The speed of a step: sums, timed calls, formulas of rates, percentiles and shares, and the use of its nodes.

Totals, live view, statistics of records, metrics, comparisons and predictions all use these formulas.
docs/measuring/profiling.md defines each figure. Times are in seconds unless a name ends in `ms`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.planning.sample import PERCENTILES, Statistics
from framekiln.profiling.records import CALL, OUTSIDE, StepEvent

QUANTILES: Mapping[str, float] = {name: PERCENTILES[name] for name in ("p50", "p95", "p99")}

STEADY = (0.2, 0.8)  # shares of finished rows between which a run is steady
MIN_STEADY_PACKETS = 5  # packets; with fewer, the rate would rest on one or two

Floats = NDArray[np.float64]
Percentiles = tuple[float, float | None, float | None]
NO_PERCENTILES: Percentiles = (0.0, None, None)
_MIN_CPU_SAMPLES = 4  # samples, one second; the first sample of a run has no value


def rows_per_s(rows: float, seconds: float) -> float:
    """Return rows a second; 0 if no time has passed."""
    return rows / seconds if seconds > 0 else 0.0


def ms_per_row(seconds: float, rows: float) -> float | None:
    """Return busy milliseconds a row; None without rows."""
    return 1000 * seconds / rows if rows else None


def steady_rows_per_s(ends: Floats, rows: Floats, seconds: Floats) -> float | None:
    """Return rows a second between the moments at which 20 % and 80 % of the rows of n packets were finished.

    None with fewer than five packets, or if these moments lie closer than one packet takes.
    """
    if len(ends) < MIN_STEADY_PACKETS:
        return None
    order = np.argsort(ends)
    moments, finished = ends[order], np.cumsum(rows[order])
    first, last = (int(np.searchsorted(finished, share * finished[-1])) for share in STEADY)
    length = moments[last] - moments[first]
    return float((finished[last] - finished[first]) / length) if length >= max(seconds.mean(), 1e-9) else None


def percentiles_ms(seconds: Floats | Sequence[float]) -> Percentiles:
    """Return p50, p95 and p99 in milliseconds, as benches do: p95 is None below 100 values, p99 below 500."""
    if not len(seconds):
        return NO_PERCENTILES
    found = Statistics.of(seconds, keep=False)  # type: ignore[arg-type]
    return found.median, found.p95, found.p99


def covered_s(started: Floats, seconds: Floats) -> float:
    """Return the seconds that n intervals cover together: a process may work on several packets at a time."""
    order = np.argsort(started, kind="stable")
    begin, end = started[order], started[order] + seconds[order]
    reached = np.maximum.accumulate(np.concatenate([[-np.inf], end[:-1]])) if len(end) else end
    return float(np.maximum(0.0, end - np.maximum(begin, reached)).sum())


def share_of_time(part: float, whole: float) -> float:
    """Return a share of process time, such as busy or waiting; at most 1, since processes' clocks overlap a little."""
    return min(1.0, part / max(whole, 1e-9))


def phase_seconds(durations: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return the seconds of each phase inside a step, without those in `OUTSIDE`; `other` is the rest."""
    phases = {name: value for name, value in durations.items() if value and name not in OUTSIDE}
    return phases | {"other": max(0.0, seconds - sum(phases.values()))}


def phase_shares(durations: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return the phases as shares of a step's seconds; `other` is 1 if no time has passed."""
    if not seconds:
        return {"other": 1.0}
    return {name: value / seconds for name, value in phase_seconds(durations, seconds).items()}


@dataclass(kw_only=True)
class StepTotals:
    """The sums of one step over all workers, from a run's events or from its records."""

    rows: int = 0
    failures: int = 0  # not in records
    busy: float = 0.0  # seconds inside packets, without waits for other packets in the model
    first: float = 0.0  # start of the first packet, seconds since the epoch
    last: float = 0.0  # end of the last packet, seconds since the epoch
    set_up: float = 0.0  # seconds of the slowest worker's set-up
    workers: set[str] = field(default_factory=set)
    phases: dict[str, float] = field(default_factory=dict)  # seconds inside packets

    def add(self, event: StepEvent) -> None:
        self.rows += event.rows
        self.failures += event.failures
        self.busy += event.seconds - event.phases.get("queue", 0.0)
        self.first = min(self.first or event.started, event.started)
        self.last = max(self.last, event.ended)
        self.workers.add(event.worker)
        for name, seconds in event.inside.items():
            self.phases[name] = self.phases.get(name, 0.0) + seconds

    @property
    def rate(self) -> float:
        """Rows a second from the start of the first packet to the end of the last; 0 before the first packet."""
        return rows_per_s(self.rows, self.last - self.first)

    def to_dict(self) -> dict[str, Any]:
        """Return the totals as run.json stores them under `figures`."""
        cost = ms_per_row(self.busy, self.rows)
        return {
            "rows": self.rows,
            "errors": self.failures,
            "workers": len(self.workers),
            "rows_per_s": round(self.rate, 4),
            "busy_s": round(self.busy, 3),
            "set_up_s": round(self.set_up, 3),
            "ms_per_row": None if cost is None else round(cost, 3),
            "phases_s": {name: round(seconds, 3) for name, seconds in self.phases.items()},
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class TimedCalls:
    """One step's n calls with rows, sorted by worker and time."""

    worker: NDArray[np.int64]  # n, numbers from 0
    started: Floats  # n, seconds since the epoch
    seconds: Floats  # n, inside the call
    rows: NDArray[np.int64]  # n, at least 1 each

    @classmethod
    def of(cls, worker: Any, started: Any, seconds: Any, rows: Any) -> TimedCalls:
        """Sort calls, leaving out those without rows. `worker`: names or numbers."""
        numbers = np.unique(np.asarray(worker), return_inverse=True)[1]
        amounts = np.asarray(rows, np.int64)
        order = np.lexsort((np.asarray(started), numbers))
        order = order[amounts[order] > 0]
        times, spent = np.asarray(started, np.float64), np.asarray(seconds, np.float64)
        return cls(worker=numbers[order], started=times[order], seconds=spent[order], rows=amounts[order])

    @property
    def cycles(self) -> Floats:
        """Return the seconds from each call's start to its worker's next call; for the last call, its own seconds."""
        following = np.append(self.started[1:], np.inf)
        last = np.append(self.worker[1:] != self.worker[:-1], True)
        return np.where(last, self.seconds, np.maximum(following - self.started, self.seconds))


def gpu_use(records: pa.Table, nodes: pa.Table | None) -> float | None:
    """Return the mean utilisation of GPUs, 0 to 1, in samples taken during a call on the same node.

    On a node with several GPUs the busiest in each sample counts, since records do not name a call's GPU.
    None without calls on a GPU or without samples.
    """
    calls = records.filter(pc.and_(pc.equal(records["device"], "cuda"), pc.equal(records["kind"], CALL)))
    if nodes is None or not calls.num_rows:
        return None
    samples = _select_during(calls, nodes, "gpus")
    known = [[gpu["use_percent"] for gpu in gpus or () if gpu["use_percent"] is not None] for gpus in samples]
    busiest = [max(percents) / 100 for percents in known if percents]
    return float(np.mean(busiest)) if busiest else None


def cpu_use(packets: pa.Table, nodes: pa.Table | None) -> float | None:
    """Return the mean use of all cores, 0 to 1, while packets ran on the node; None below four samples."""
    samples = _select_during(packets, nodes, "cpu_percent") if nodes else ()
    shares = [percent / 100 for percent in samples if percent is not None]
    return float(np.mean(shares)) if len(shares) >= _MIN_CPU_SAMPLES else None


def others_use(records: pa.Table, nodes: pa.Table | None) -> float | None:
    """Return the mean use of all cores by other programs, 0 to 1, while any record ran.

    None with fewer than four samples, as in `cpu_use`.
    """
    if nodes is None:
        return None
    whole, own = (list(_select_during(records, nodes, name)) for name in ("cpu_percent", "own_cpu_percent"))
    shares = [(one - mine) / 100 for one, mine in zip(whole, own, strict=True) if None not in (one, mine)]
    # New processes are found up to two seconds late, with all their use so far. The mean is right; a sample may not be.
    return max(0.0, float(np.mean(shares))) if len(shares) >= _MIN_CPU_SAMPLES else None


def _select_during(records: pa.Table, nodes: pa.Table, name: str) -> Iterator[Any]:
    """Yield a column's values in samples taken while a record of the same node ran."""
    for node in pc.unique(records["node"]).to_pylist():
        mine = records.filter(pc.equal(records["node"], node)).sort_by("started")
        starts, reach = floats(mine, "started"), np.maximum.accumulate(ends(mine))
        samples = nodes.filter(pc.equal(nodes["node"], node))
        for moment, value in zip(samples["time"].to_pylist(), samples[name].to_pylist(), strict=True):
            before = int(np.searchsorted(starts, moment, side="right")) - 1
            if before >= 0 and moment <= reach[before]:
                yield value


def ends(records: pa.Table) -> Floats:
    """Return when each record ended, in seconds since the epoch."""
    moments: Floats = floats(records, "started") + floats(records, "seconds")
    return moments


def floats(records: pa.Table, name: str) -> Floats:
    """Return a column as numbers."""
    return np.asarray(records[name].to_numpy(), dtype=np.float64)
