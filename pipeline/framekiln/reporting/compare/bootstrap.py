"""Confidence intervals of changes, by a block bootstrap of calls.

A run's calls are resampled in blocks of consecutive calls of one worker, since neighbouring calls are alike: images of
one video, or a machine that is busy for a while. Independent resampling would take noise for a difference. Repeated
runs are resampled too, and the calls within each.

All computations are on logarithms, so that twice and half are the same distance. The spread of the resamples is a
standard error. Intervals are Student's, since runs or blocks may be few.

Circular blocks: Politis and Romano 1992. Block length: Politis and White, "Automatic block-length selection for the
dependent bootstrap", Econometric Reviews 23 (2004), with the correction of Patton, Politis and White (2009).
"""

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framekiln.planning.sample import calls_for
from framekiln.profiling.stats.speed import QUANTILES, TimedCalls

RESAMPLES = 1000
LEVEL = 0.95  # of an interval
MOST_CALLS = 5_000  # drawn in one resample, 0.1 to 0.4 s a step; the spread of more calls shrinks by their square root
LEAST_CALLS = 40  # with 24, intervals missed the true change in 9 % of draws, in 22 % where neighbours were alike
_LENGTHENING = 2.0  # of the optimal block length: with 1.5, up to 8.7 % of equal runs were called different
_AT_ONCE = 2_000_000  # numbers in memory
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Estimate = tuple[float, float]
"""A variance and its degrees of freedom."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """Variation of a run's figure over resamples."""

    deviations: Floats  # RESAMPLES, of its logarithm
    freedom: float  # degrees of freedom of their spread


@dataclass(frozen=True, kw_only=True)
class ChangeInterval:
    """The 95 % confidence interval of a change, as shares: 0.1 is 10 % more."""

    low: float
    high: float

    @property
    def contains_zero(self) -> bool:
        """True where chance alone explains the change."""
        return self.low <= 0 <= self.high


def spreads(calls: TimedCalls, seed: str) -> dict[str, Spread]:
    """Return the spreads of rate, ms_row and quantiles over resampled calls; empty with fewer than 40 calls.

    The seed is a text that is unique to the step and the run.
    """
    count = len(calls.rows)
    if count < LEAST_CALLS:
        return {}
    each, cycles, rows = calls.seconds / calls.rows, calls.cycles, calls.rows
    length = block_length(each, calls.worker)
    known = [name for name, share in QUANTILES.items() if count >= calls_for(share)]
    parts: dict[str, list[Floats]] = {}
    for drawn in _resample(calls.worker, length, np.random.default_rng(zlib.crc32(seed.encode()))):
        total = rows[drawn].sum(1)
        figures = {"rate": total / cycles[drawn].sum(1), "ms_row": calls.seconds[drawn].sum(1) / total}
        quantiles = np.quantile(each[drawn], [QUANTILES[name] for name in known], axis=1, overwrite_input=True)
        figures |= zip(known, quantiles, strict=True)
        for name, values in figures.items():
            parts.setdefault(name, []).append(values)
    whole = {"rate": rows.sum() / cycles.sum(), "ms_row": calls.seconds.sum() / rows.sum()}
    whole |= {name: float(np.quantile(each, share)) for name, share in QUANTILES.items()}
    freedom = max(1.0, count / length - 1)
    wider = math.sqrt(min(count, MOST_CALLS) / (count - length))  # a circle's blocks lack the spread within a block
    return {
        name: Spread(deviations=wider * np.log(np.concatenate(values) / whole[name]), freedom=freedom)
        for name, values in parts.items()
        if whole[name] > 0
    }


def _resample(worker: Integers, length: int, random: np.random.Generator) -> Iterator[Integers]:
    """Yield resamples in batches: indices of calls, in circular blocks of each worker's calls."""
    keep = min(1.0, MOST_CALLS / len(worker))
    edges = np.flatnonzero(np.append(True, worker[1:] != worker[:-1]))
    counts = np.diff(np.append(edges, len(worker)))
    draws = np.maximum(1, np.round(counts * keep).astype(np.int64))
    most = max(1, _AT_ONCE // int(draws.sum()))
    for done in range(0, RESAMPLES, most):
        size = min(most, RESAMPLES - done)
        groups = zip(edges, counts, draws, strict=True)
        yield np.concatenate([first + _draw_blocks(n, k, length, size, random) for first, n, k in groups], axis=1)


def _draw_blocks(count: int, draws: int, length: int, size: int, random: np.random.Generator) -> Integers:
    length = min(length, max(1, count // 2))
    starts = random.integers(count, size=(size, -(-draws // length)))
    numbers = (starts[:, :, None] + np.arange(length)) % count
    return numbers.reshape(size, -1)[:, :draws]


def block_length(values: Floats, worker: Integers) -> int:
    """Return the calls in a block, by the correlation of neighbours: 1 to a sixth of all.

    The n values are in the order of time within each worker, and sorted by worker, whose calls alone are neighbours.
    """
    count = len(values)
    reach = min(count // 2, math.ceil(math.sqrt(count)) + 5, 200)
    autocovariance = _measure_autocovariance(np.log(np.maximum(values, 1e-12)), worker, reach)
    if autocovariance[0] <= 0:
        return 1
    close = np.abs(autocovariance[1:] / autocovariance[0]) < 2 * math.sqrt(math.log10(count) / count)
    run = max(5, math.ceil(math.sqrt(math.log10(count))))
    quiet = (k for k in range(len(close)) if close[k : k + run].all())
    bandwidth = min(reach - 1, 2 * max(1, next(quiet, reach // 2)))
    lags = np.arange(1, bandwidth + 1)
    taper = np.clip(2 * (1 - lags / bandwidth), 0, 1)
    near = taper * autocovariance[1 : bandwidth + 1]
    flat = autocovariance[0] + 2 * near.sum()
    slope = 2 * (lags * near).sum()
    if flat <= 0:
        return 1
    best = (1.5 * (slope / flat) ** 2 * count) ** (1 / 3)
    return int(np.clip(math.ceil(_LENGTHENING * best), 1, max(1, count // 6)))


def _measure_autocovariance(values: Floats, worker: Integers, reach: int) -> Floats:
    off = values - values.mean()
    return np.array(
        [float((off[k:] * off[: len(off) - k])[worker[k:] == worker[: len(off) - k]].sum()) for k in range(reach)]
    ) / len(off)


def change(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the change from the first side to the second as a share; of repeated runs between geometric means."""
    if not (first and second and min(first) > 0 and min(second) > 0):
        return None
    return math.exp(float(np.mean(np.log(second)) - np.mean(np.log(first)))) - 1


def interval(
    first: Sequence[float],
    second: Sequence[float],
    first_spreads: Sequence[Spread | None],
    second_spreads: Sequence[Spread | None],
) -> ChangeInterval | None:
    """Return the interval of the change from the first side to the second; None where its variance is not known.

    Each side has a figure's value and spread for each run; None for a spread where calls are too few or not recorded.
    """
    if change(first, second) is None:
        return None
    sides = (np.log(first), first_spreads), (np.log(second), second_spreads)
    repeated = [(float(values.var(ddof=1)), len(values) - 1.0) for values, _ in sides if len(values) > 1]
    variances = [_estimate(values, by_run, repeated) for values, by_run in sides]
    middle = float(np.mean(sides[1][0]) - np.mean(sides[0][0]))
    if variances[0] is None or variances[1] is None:
        return None
    half = _find_half_width(variances[0], variances[1])
    return ChangeInterval(low=math.expm1(middle - half), high=math.expm1(middle + half))


def _find_half_width(first: Estimate, second: Estimate) -> float:
    """Return half the width of Student's interval of a difference (Welch-Satterthwaite degrees of freedom)."""
    from scipy.stats import t as student

    (a, df_a), (b, df_b) = first, second
    if a + b == 0:
        return 0.0
    freedom = (a + b) ** 2 / (a**2 / df_a + b**2 / df_b)
    return float(student.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(a + b)


def _estimate(values: Floats, spreads: Sequence[Spread | None], repeated: Sequence[Estimate]) -> Estimate | None:
    """Return the variance of the mean of a side's logarithms.

    That of a single run is at least the variance between the other side's runs.
    """
    count = len(values)
    if count == 1:
        own = [] if spreads[0] is None else [(float(spreads[0].deviations.var(ddof=1)), spreads[0].freedom)]
        return max([*own, *repeated], default=None)
    within = np.stack([spread.deviations if spread is not None else np.zeros(RESAMPLES) for spread in spreads])
    whole, calls = float(values.var(ddof=1)), float(within.var(axis=1, ddof=1).mean())
    random = np.random.default_rng(count)
    runs = random.integers(count, size=(RESAMPLES, count))
    # The variance between runs includes that of their calls. Calls are drawn as well, so runs keep the rest only.
    rest = math.sqrt(max(0.0, 1 - calls / whole) * count / (count - 1)) if whole else 0.0
    drawn = rest * (values - values.mean())[runs] + within[runs, random.integers(RESAMPLES, size=runs.shape)]
    variance = float(drawn.mean(1).var(ddof=1))
    freedom = (count - 1) * (variance * count / whole) ** 2 if whole else count - 1.0
    return variance, min(max(freedom, count - 1.0), sum(spread.freedom for spread in spreads if spread) or count - 1.0)
