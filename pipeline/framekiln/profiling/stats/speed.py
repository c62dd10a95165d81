"""Formulas for the speed of a step: rates, time per row, percentiles, and shares of time.

Totals, the live view, statistics of records, metrics, comparisons and predictions all use these formulas.
docs/measuring/profiling.md defines each figure. Times are in seconds unless a name ends in `ms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from framekiln.profiling.events import StepEvent
from framekiln.profiling.records import DURATIONS

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

OUTSIDE = ("wait", "fetch", "seal")
"""Durations that are not part of a packet's seconds."""

INSIDE = tuple(name for name in DURATIONS if name not in OUTSIDE)
"""Durations that are part of a packet's seconds."""

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
