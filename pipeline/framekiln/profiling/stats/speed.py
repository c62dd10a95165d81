"""The speed of a step: its sums, its timed calls, and the formulas of rates, percentiles and shares of time.

Totals, the live view, statistics of records, metrics, comparisons and predictions all use them.
docs/measuring/profiling.md defines each figure. Times are in seconds unless a name ends in `ms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.profiling.events import StepEvent
from framekiln.profiling.records import OUTSIDE

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

STEADY = (0.2, 0.8)  # shares of finished rows; the start and the end of a run lie outside
MIN_STEADY_PACKETS = 5  # with fewer, the rate would rest on one or two packets

Floats = NDArray[np.float64]
Percentiles = tuple[float, float, float]


def rows_per_s(rows: float, seconds: float) -> float:
    """Return rows a second; 0 where no time has passed."""
    return rows / seconds if seconds > 0 else 0.0


def ms_per_row(seconds: float, rows: float) -> float | None:
    """Return busy milliseconds a row; None without rows."""
    return 1000 * seconds / rows if rows else None


def steady_rows_per_s(ends: Floats, rows: Floats) -> float | None:
    """Return rows a second between the moments when 20 % and 80 % of the rows of n packets were finished.

    None with fewer than five packets, or where all packets in between ended at one moment.
    """
    if len(ends) < MIN_STEADY_PACKETS:
        return None
    order = np.argsort(ends)
    moments, finished = ends[order], np.cumsum(rows[order])
    first, last = (int(np.searchsorted(finished, share * finished[-1])) for share in STEADY)
    length = moments[last] - moments[first]
    return float((finished[last] - finished[first]) / length) if length > 0 else None


def percentiles_ms(seconds: Floats | Sequence[float]) -> Percentiles | None:
    """Return p50, p95 and p99 in milliseconds, by linear interpolation; None without values."""
    if not len(seconds):
        return None
    p50, p95, p99 = (float(value) for value in 1000 * np.quantile(seconds, tuple(QUANTILES.values())))
    return p50, p95, p99


def covered_s(started: Floats, seconds: Floats) -> float:
    """Return the seconds that at least one of n intervals covers: a process may work on several packets at a time."""
    order = np.argsort(started, kind="stable")
    begin, end = started[order], started[order] + seconds[order]
    reached = np.maximum.accumulate(np.concatenate([[-np.inf], end[:-1]])) if len(end) else end
    return float(np.maximum(0.0, end - np.maximum(begin, reached)).sum())


def share_of_time(part: float, whole: float) -> float:
    """Return a share of process time, such as busy or waiting; 1 at most, as clocks of processes overlap a little."""
    return min(1.0, part / max(whole, 1e-9))


def phase_seconds(durations: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return the seconds of each phase inside a step, without those of `OUTSIDE`; `other` is the rest."""
    phases = {name: value for name, value in durations.items() if value and name not in OUTSIDE}
    return phases | {"other": max(0.0, seconds - sum(phases.values()))}


def phase_shares(durations: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return the phases as shares of a step's seconds; all of it is `other` where no time has passed."""
    if not seconds:
        return {"other": 1.0}
    return {name: value / seconds for name, value in phase_seconds(durations, seconds).items()}


def input_wait(event: StepEvent) -> float:
    """Return the seconds between handing on a process's last packet and starting this one: waiting and opening it."""
    return sum(event.around.get(name, 0.0) for name in ("wait", "fetch"))


@dataclass(kw_only=True)
class StepTotals:
    """One step's sums over all workers: of events while a run is at work, or of its records."""

    rows: int = 0
    failures: int = 0  # in no record
    busy: float = 0.0  # seconds inside packets, without the wait for others in the model
    first: float = 0.0  # start of the first packet, seconds since the epoch
    last: float = 0.0  # end of the last packet, seconds since the epoch
    set_up: float = 0.0  # seconds of the slowest worker's set-up
    workers: set[str] = field(default_factory=set)
    phases: dict[str, float] = field(default_factory=dict)  # seconds inside packets

    def add(self, event: StepEvent) -> None:
        """Count one packet."""
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
    """One step's n calls with rows, sorted by worker and time, as a comparison resamples them."""

    worker: NDArray[np.int64]  # n, numbers from 0
    started: Floats  # n, seconds since the epoch
    seconds: Floats  # n, inside the call
    rows: NDArray[np.int64]  # n, at least 1 each

    @classmethod
    def of(cls, worker: Any, started: Any, seconds: Any, rows: Any) -> TimedCalls:
        """Sort calls; those without rows are left out. `worker` are names or numbers."""
        numbers = np.unique(np.asarray(worker), return_inverse=True)[1]
        amounts = np.asarray(rows, np.int64)
        order = np.lexsort((np.asarray(started), numbers))
        order = order[amounts[order] > 0]
        times, spent = np.asarray(started, np.float64), np.asarray(seconds, np.float64)
        return cls(worker=numbers[order], started=times[order], seconds=spent[order], rows=amounts[order])

    @property
    def cycles(self) -> Floats:
        """Seconds from each call's start to its worker's next call; for a worker's last call, its own seconds."""
        following = np.append(self.started[1:], np.inf)
        last = np.append(self.worker[1:] != self.worker[:-1], True)
        return np.where(last, self.seconds, np.maximum(following - self.started, self.seconds))
