"""Statistics of a loop's times, with percentiles only where there are enough calls for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BEYOND = 5
"""Calls that must lie beyond a percentile: 100 for p95, 500 for p99. The p99 of 50 calls is always their largest."""

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Times in milliseconds; a figure is None where there are too few calls for it."""

    count: int
    mean: float
    median: float
    std: float | None  # of the sample; None for one call
    min: float
    max: float
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, seconds: Sequence[float], *, keep: bool = True) -> Statistics:
        """Return the statistics of at least one time in seconds, with all of them in ms if `keep`."""
        ms = 1000 * np.asarray(seconds, np.float64)
        count = len(ms)
        known = {
            name: float(np.quantile(ms, share)) if round(count * (1 - share), 9) >= BEYOND else None
            for name, share in PERCENTILES.items()
        }
        return cls(
            count=count,
            mean=float(ms.mean()),
            median=float(np.median(ms)),
            std=float(ms.std(ddof=1)) if count > 1 else None,
            min=float(ms.min()),
            max=float(ms.max()),
            values=tuple(round(float(value), 6) for value in ms) if keep else (),
            **known,
        )


def calls_for(share: float) -> int:
    """Return the number of calls from which a percentile is given."""
    return round(BEYOND / (1 - share))
