"""What values a column takes, in a few numbers and bars: where a stage went wrong shows here first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.columns import describe
from pipeline.telemetry.report.rows import Extract, is_list, is_text
from pipeline.telemetry.report.words import count, number, on_axis

BARS = 24  # of a histogram: Sturges' rule gives 19 for 200,000 rows; skewed values want some more
VALUES = 8  # texts shown, the most common ones
TAIL = 0.005  # on either side: what lies there may leave the axis when it would squeeze all else into a few bars
SQUEEZE = 4.0  # by so much must leaving it out shorten the axis
WIDEST, NARROWEST, TINY = 1e300, 1e-9, 1e-290  # beyond, an axis cannot be divided into bars in double precision


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar of a chart."""

    label: str  # a value, or the range from which values are counted
    rows: int


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts over an axis, bars of equal width from `low` to `high`."""

    low: float
    high: float
    median: float
    bars: tuple[Bar, ...]
    discrete: bool  # bars stand for one value each, at the bar's middle
    below: int = 0  # rows under the axis
    above: int = 0  # rows over it


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A column with its meaning and its values."""

    name: str
    type: str
    unit: str
    description: str
    rows: int
    nulls: int
    is_length: bool = False  # of lists, it is their lengths that are counted
    histogram: Histogram | None = None
    values: tuple[Bar, ...] = ()  # of texts and truth values, by how common they are
    facts: Mapping[str, str] = field(default_factory=dict)  # min, median, max
    notes: tuple[str, ...] = ()


def distributions(extract: Extract) -> list[Distribution]:
    """Every column of a table, in its order; those of other types without values."""
    return [_distribution(about, extract) for about in describe(extract.schema)]


def _distribution(about: Mapping[str, Any], extract: Extract) -> Distribution:
    name, kind = about["name"], extract.schema.field(about["name"]).type
    column = extract.columns.get(name)
    if column is None:
        return Distribution(**about, rows=extract.taken, nulls=0)
    found = {"rows": len(column), "nulls": column.null_count, "is_length": is_list(kind)}
    given = column.drop_null()
    if not len(given):
        return Distribution(**about, **found)
    if pa.types.is_boolean(kind):
        return Distribution(**about, **found, values=_truths(given))
    if is_text(kind):
        values, notes = _texts(given)
        return Distribution(**about, **found, values=values, notes=notes)
    histogram, facts, notes = _numbers(given)
    return Distribution(**about, **found, histogram=histogram, facts=facts, notes=notes)


def _truths(column: pa.ChunkedArray) -> tuple[Bar, ...]:
    true = pc.sum(column).as_py()
    return Bar(label="true", rows=true), Bar(label="false", rows=len(column) - true)


def _texts(column: pa.ChunkedArray) -> tuple[tuple[Bar, ...], tuple[str, ...]]:
    counted = [(item["values"], item["counts"]) for item in pc.value_counts(column).to_pylist()]
    counted.sort(key=lambda pair: (-pair[1], pair[0]))
    if len(counted) > VALUES and counted[0][1] == 1:
        return (), (f"{len(counted):,} different values, each once",)
    shown, others = counted[:VALUES], counted[VALUES:]
    rest = count(sum(rows for _, rows in others), "row")
    notes = (f"and {count(len(others), 'other value')} in {rest}",) if others else ()
    return tuple(Bar(label=text, rows=rows) for text, rows in shown), notes


def _numbers(column: pa.ChunkedArray) -> tuple[Histogram | None, Mapping[str, str], tuple[str, ...]]:
    whole = pa.types.is_integer(column.type)
    values = column.to_numpy().astype(np.float64)
    finite = np.sort(values[np.isfinite(values)])
    notes = (f"{count(len(values) - len(finite), 'row')} not finite",) if len(finite) < len(values) else ()
    if not len(finite):
        return None, {}, notes
    facts = {"min": finite[0], "median": np.median(finite), "max": finite[-1]}
    histogram = _histogram(finite, whole)
    if histogram and histogram.below + histogram.above:
        notes = (*notes, f"grey: {count(histogram.below + histogram.above, 'row')} beyond the axis")
    return histogram, {name: number(float(value)) for name, value in facts.items()}, notes


def _histogram(ordered: NDArray[np.float64], whole: bool) -> Histogram | None:
    low, high = _axis(ordered)
    if not high - low < WIDEST:
        return None
    first, stop = int(np.searchsorted(ordered, low, "left")), int(np.searchsorted(ordered, high, "right"))
    inside, median = ordered[first:stop], float(np.median(ordered))
    beyond = {"below": first, "above": len(ordered) - stop}
    single = high - low <= NARROWEST * max(abs(low), abs(high), TINY)
    if single or (whole and high - low < BARS):
        start = low if single else math.ceil(low)
        places = np.zeros(len(inside), np.int64) if single else (inside - start).astype(np.int64)
        bars = [Bar(label=number(float(start + i)), rows=rows) for i, rows in enumerate(np.bincount(places).tolist())]
        ends = start - 0.5, start + len(bars) - 0.5
        return Histogram(low=ends[0], high=ends[1], median=median, bars=tuple(bars), discrete=True, **beyond)
    counts, edges = np.histogram(inside, bins=BARS, range=(low, high))
    labels = [f"{on_axis(a, high - low)} to {on_axis(b, high - low)}" for a, b in pairwise(edges.tolist())]
    bars = [Bar(label=label, rows=rows) for label, rows in zip(labels, counts.tolist(), strict=True)]
    return Histogram(low=low, high=high, median=median, bars=tuple(bars), discrete=False, **beyond)


def _axis(ordered: NDArray[np.float64]) -> tuple[float, float]:
    """From the least to the greatest value, or without the tails where these would squeeze the rest."""
    low, high = float(ordered[0]), float(ordered[-1])
    near, far = (float(value) for value in np.quantile(ordered, [TAIL, 1 - TAIL]))
    return (near, far) if far > near and high - low > SQUEEZE * (far - near) else (low, high)
