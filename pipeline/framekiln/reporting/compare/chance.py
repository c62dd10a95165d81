"""Confidence intervals of changes, by a block jackknife of calls.

Neighbouring calls of a worker are alike: images of one video, or a machine that is busy for a while. So a run's calls
are cut into blocks of consecutive calls, and each figure is computed without each block in turn. Its variance follows
from the spread of these values. The variance of repeated runs is that between them, and at least that of their calls.

All computations use logarithms, so that twice and half are equally far. Intervals are Student's, since runs or blocks
may be few. Efron and Stein 1981; Künsch, "The jackknife and the bootstrap for general stationary observations", Annals
of Statistics 17 (1989).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from framekiln.planning.sample import INTERVAL_CALLS, PERCENTILES, calls_for
from framekiln.profiling.stats.speed import TimedCalls

LEVEL = 0.95  # probability of an interval
_BLOCK = 16  # calls of a block; in shorter blocks, similar neighbours make equal runs look different
_BLOCKS = (8, 20)  # least and most; longer blocks instead of more remain valid for calls that are alike for longer


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The variance of a run's figure, taken of its logarithm."""

    variance: float
    freedom: float  # degrees of freedom of the variance


@dataclass(frozen=True, kw_only=True)
class ChangeInterval:
    """The 95 % confidence interval of a change, as shares: 0.1 is 10 % more."""

    low: float
    high: float

    @property
    def contains_zero(self) -> bool:
        """True if chance alone explains the change."""
        return self.low <= 0 <= self.high


def spreads(calls: TimedCalls) -> dict[str, Spread]:
    """Return the spreads of rate, ms_row and the quantiles with enough calls; empty with fewer than 40 calls."""
    count = len(calls.rows)
    if count < INTERVAL_CALLS:
        return {}
    blocks = int(np.clip(count // _BLOCK, *_BLOCKS))
    block = np.arange(count) * blocks // count
    wholes = calls.rows, calls.seconds, calls.cycles
    rows, seconds, cycles = (whole.sum() - np.bincount(block, whole, blocks) for whole in wholes)
    figures = {"rate": rows / np.maximum(cycles, 1e-12), "ms_row": seconds / rows}
    known = {name: share for name, share in PERCENTILES.items() if count >= calls_for(share)}
    each = calls.seconds / calls.rows
    without = np.array([np.quantile(each[block != number], list(known.values())) for number in range(blocks)])
    figures |= zip(known, without.T, strict=True)
    return {
        name: Spread(variance=float((blocks - 1) * np.log(values).var()), freedom=blocks - 1)
        for name, values in figures.items()
        if values.min() > 0
    }


def change(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the change from the first side to the second as a share; of repeated runs, between geometric means."""
    if not (first and second and min(first) > 0 and min(second) > 0):
        return None
    return math.exp(float(np.mean(np.log(second)) - np.mean(np.log(first)))) - 1


def interval(
    values: tuple[Sequence[float], Sequence[float]], by_run: tuple[Sequence[Spread | None], Sequence[Spread | None]]
) -> ChangeInterval | None:
    """Return the interval of the change from the first side to the second; None if its variance is unknown.

    Each side has a figure's value and spread for each run; the spread is None if calls are too few or not recorded. A
    single run's variance is at least that between the other side's runs.
    """
    from scipy.stats import t as student

    if change(*values) is None:
        return None
    logs = [np.log(side) for side in values]
    between = [Spread(variance=float(side.var(ddof=1)), freedom=len(side) - 1.0) for side in logs if len(side) > 1]
    sides: list[Spread] = []
    for side, known in zip(logs, by_run, strict=True):
        own = [spread for spread in known if spread is not None]
        if len(side) > 1:  # the variance between repeated runs includes that of their calls
            count, between_runs = len(side), float(side.var(ddof=1))
            calls = sum(run.variance for run in own) / count
            freedom = (count - 1) * max(1.0, calls / between_runs if between_runs else 1.0) ** 2
            most = max(count - 1.0, sum(run.freedom for run in own))
            sides.append(Spread(variance=max(between_runs, calls) / count, freedom=min(freedom, most)))
        elif own or between:
            sides.append(max([*own, *between], key=lambda spread: spread.variance))
        else:
            return None
    variance = sum(side.variance for side in sides)
    freedom = variance**2 / sum(side.variance**2 / side.freedom for side in sides) if variance else 1.0
    half = float(student.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(variance)  # Welch and Satterthwaite
    middle = float(logs[1].mean() - logs[0].mean())
    return ChangeInterval(low=math.expm1(middle - half), high=math.expm1(middle + half))
