"""How far chance alone moves a figure, so that a difference is not read out of noise.

A run's calls are resampled in blocks of consecutive calls of one worker, since neighbours are alike: pictures of one
video, a machine that is busy for a while. Independent resampling would call noise a difference. Where runs were
repeated, runs are resampled too, and the calls within each.

Everything is done on logarithms, so that twice and half are the same distance. The spread of the resamples is a
standard error; intervals are Student's, as there may be few runs or blocks.

Circular blocks: Politis and Romano 1992. Their length: Politis and White, "Automatic block-length selection for the
dependent bootstrap", Econometric Reviews 23 (2004), with the correction of Patton, Politis and White (2009).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.telemetry.compare.calls import Calls
from pipeline.telemetry.compare.measures import QUANTILES

RESAMPLES = 1000
LEVEL = 0.95  # of an interval
MOST_CALLS = 5_000  # drawn in one resample, .1 to .4 s a step; the spread of more is less, by the root of how many
LEAST_CALLS = 40  # of 24 calls, intervals missed the truth in 9 % of draws, and in 22 % where neighbours were alike
BEYOND = 5  # calls that must lie beyond a quantile: the resampled 99th percentile of 50 calls is their largest, always
_LONGER = 2.0  # than is best for the spread's own error: with 1.5, up to 8.7 % of equal runs were called different
_AT_ONCE = 2_000_000  # numbers held
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Estimate = tuple[float, float]
"""A variance and its degrees of freedom."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """How a run's figure varies over resamples."""

    deviations: Floats  # RESAMPLES, of its logarithm
    freedom: float  # degrees of freedom of their spread


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Where a change lies with 95 % confidence, as shares: 0.1 is 10 % more."""

    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """Whether chance alone would do."""
        return self.low <= 0 <= self.high


def spreads(calls: Calls, seed: str) -> dict[str, Spread]:
    """By figure, how far the choice of calls moves it: rate, ms_row and quantiles; none where calls are too few.

    Args:
        calls: of one step in one run.
        seed: a word, another for each run and step; the same word gives the same numbers.
    """
    count = len(calls.rows)
    if count < LEAST_CALLS:
        return {}
    each, cycles, rows = calls.seconds / calls.rows, calls.cycles, calls.rows
    length = block_length(each, calls.worker)
    parts: dict[str, list[Floats]] = {}
    for picked in _picked(calls.worker, length, np.random.default_rng(zlib.crc32(seed.encode()))):
        total = rows[picked].sum(1)
        chosen = np.sort(each[picked], axis=1)
        found = {"rate": total / cycles[picked].sum(1), "ms_row": calls.seconds[picked].sum(1) / total}
        found |= {name: _quantile(chosen, share) for name, share in QUANTILES.items() if count * (1 - share) >= BEYOND}
        for name, values in found.items():
            parts.setdefault(name, []).append(values)
    whole = {"rate": rows.sum() / cycles.sum(), "ms_row": calls.seconds.sum() / rows.sum()}
    whole |= {name: float(np.quantile(each, share)) for name, share in QUANTILES.items()}
    freedom = max(1.0, count / length - 1)
    wider = math.sqrt(min(count, MOST_CALLS) / (count - length))  # a circle's blocks lack the spread within a block
    return {
        name: Spread(deviations=wider * np.log(np.concatenate(found) / whole[name]), freedom=freedom)
        for name, found in parts.items()
        if whole[name] > 0
    }


def _quantile(ordered: Floats, share: float) -> Floats:
    """Of each row, which is sorted; by linear interpolation, as numpy does."""
    place = share * (ordered.shape[1] - 1)
    low = math.floor(place)
    high = min(low + 1, ordered.shape[1] - 1)
    result: Floats = ordered[:, low] + (place - low) * (ordered[:, high] - ordered[:, low])
    return result


def _picked(worker: Integers, length: int, chance: np.random.Generator) -> Iterator[Integers]:
    """Resamples, some at a time: indices of calls, blocks of each worker's in a circle."""
    keep = min(1.0, MOST_CALLS / len(worker))
    edges = np.flatnonzero(np.append(True, worker[1:] != worker[:-1]))
    counts = np.diff(np.append(edges, len(worker)))
    wanted = np.maximum(1, np.round(counts * keep).astype(np.int64))
    most = max(1, _AT_ONCE // int(wanted.sum()))
    for done in range(0, RESAMPLES, most):
        size = min(most, RESAMPLES - done)
        groups = zip(edges, counts, wanted, strict=True)
        yield np.concatenate([first + _blocks(n, k, length, size, chance) for first, n, k in groups], axis=1)


def _blocks(count: int, wanted: int, length: int, size: int, chance: np.random.Generator) -> Integers:
    """`size` rows of `wanted` numbers below `count`, in blocks of consecutive ones."""
    long = min(length, max(1, count // 2))
    starts = chance.integers(count, size=(size, -(-wanted // long)))
    numbers = (starts[:, :, None] + np.arange(long)) % count
    return numbers.reshape(size, -1)[:, :wanted]


def block_length(values: Floats, worker: Integers) -> int:
    """Calls in a block: as long as neighbours are alike, 1 where they are not; at most a sixth of all.

    Args:
        values: n, in the order of time within each worker.
        worker: n, sorted; pairs of calls of two workers are no neighbours.
    """
    count = len(values)
    reach = min(count // 2, math.ceil(math.sqrt(count)) + 5, 200)
    autocovariance = _autocovariance(np.log(np.maximum(values, 1e-12)), worker, reach)
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
    return int(np.clip(math.ceil(_LONGER * best), 1, max(1, count // 6)))


def _autocovariance(values: Floats, worker: Integers, reach: int) -> Floats:
    off = values - values.mean()
    return np.array(
        [float((off[k:] * off[: len(off) - k])[worker[k:] == worker[: len(off) - k]].sum()) for k in range(reach)]
    ) / len(off)


def change(first: Sequence[float], second: Sequence[float]) -> float | None:
    """What the second side has more than the first, as a share; of several runs their geometric means."""
    if not (first and second and min(first) > 0 and min(second) > 0):
        return None
    return math.exp(float(np.mean(np.log(second)) - np.mean(np.log(first)))) - 1


def interval(
    first: Sequence[float],
    second: Sequence[float],
    first_spreads: Sequence[Spread | None],
    second_spreads: Sequence[Spread | None],
) -> Interval | None:
    """Where the change from the first side to the second lies; None where nothing says how far chance moves it.

    Args:
        first: a figure's values in each run of the first side.
        second: of the second side.
        first_spreads: how the calls of each of these runs move it; None where they are too few or not known.
        second_spreads: of the second side.
    """
    if change(first, second) is None:
        return None
    sides = (np.log(first), first_spreads), (np.log(second), second_spreads)
    repeated = [(float(values.var(ddof=1)), len(values) - 1.0) for values, _ in sides if len(values) > 1]
    known = [_variance(values, found, repeated) for values, found in sides]
    middle = float(np.mean(sides[1][0]) - np.mean(sides[0][0]))
    if known[0] is None or known[1] is None:
        return None
    reach = _reach(known[0], known[1])
    return Interval(low=math.expm1(middle - reach), high=math.expm1(middle + reach))


def _reach(first: Estimate, second: Estimate) -> float:
    """Half the width of Student's interval of a difference, by the degrees of freedom of Welch and Satterthwaite."""
    from scipy.stats import t as student

    (a, df_a), (b, df_b) = first, second
    if a + b == 0:
        return 0.0
    freedom = (a + b) ** 2 / (a**2 / df_a + b**2 / df_b)
    return float(student.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(a + b)


def _variance(values: Floats, found: Sequence[Spread | None], repeated: Sequence[Estimate]) -> Estimate | None:
    """Of the mean of a side's logarithms; of a single run also by the spread between the other side's runs."""
    count = len(values)
    if count == 1:
        own = [] if found[0] is None else [(float(found[0].deviations.var(ddof=1)), found[0].freedom)]
        return max([*own, *repeated], default=None)
    within = np.stack([one.deviations if one is not None else np.zeros(RESAMPLES) for one in found])
    whole, calls = float(values.var(ddof=1)), float(within.var(axis=1, ddof=1).mean())
    chance = np.random.default_rng(count)
    runs = chance.integers(count, size=(RESAMPLES, count))
    # Runs differ by what befalls them and by their calls; calls are drawn as well, so runs keep the rest only.
    rest = math.sqrt(max(0.0, 1 - calls / whole) * count / (count - 1)) if whole else 0.0
    drawn = rest * (values - values.mean())[runs] + within[runs, chance.integers(RESAMPLES, size=runs.shape)]
    variance = float(drawn.mean(1).var(ddof=1))
    freedom = (count - 1) * (variance * count / whole) ** 2 if whole else count - 1.0
    return variance, min(max(freedom, count - 1.0), sum(one.freedom for one in found if one) or count - 1.0)
