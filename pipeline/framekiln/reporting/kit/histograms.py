"""The distribution of a column's values, which shows errors of a stage first; `kit.html` draws it as SVG."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.columns import describe
from framekiln.reporting.kit.texts import axis_value, count, number
from framekiln.reporting.table_rows import Extract, is_list, is_text

COUNTERS = frozenset({"frame_index", "clip_index", "first_frame", "last_frame"})  # numbers in a file, no quantities
BARS = 24  # bars of a histogram; Sturges' rule gives 19 for 200,000 rows, skewed values need some more
VALUES = 8  # shown texts, the most common ones
TAIL = 0.005  # share of rows on either side that may leave the axis if they would squeeze all others
SQUEEZE = 4.0  # factor by which leaving them out must shorten the axis
WIDEST, NARROWEST, TINY = 1e300, 1e-9, 1e-290  # limits of an axis that double precision can divide into bars


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar of a chart."""

    label: str  # a value, or a range of values
    rows: int


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts over an axis, bars of equal width from `low` to `high`."""

    low: float
    high: float
    bars: tuple[Bar, ...]
    discrete: bool  # bars stand for one value each, at the bar's middle
    beyond: int = 0  # rows under and over the axis

    @property
    def tallest(self) -> int:
        return max(bar.rows for bar in self.bars)


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A column with its description and its values."""

    name: str
    type: str
    unit: str
    description: str
    rows: int
    nulls: int
    is_length: bool = False  # the values are lengths of lists
    histogram: Histogram | None = None
    values: tuple[Bar, ...] = ()  # texts and booleans, most common first
    facts: Mapping[str, str] = field(default_factory=dict)  # min, median, max
    notes: tuple[str, ...] = ()


def distributions(extract: Extract) -> list[Distribution]:
    """Return every column of a table in order; columns of other types have no values."""
    found = []
    for about in describe(extract.schema):
        name, kind = about["name"], extract.schema.field(about["name"]).type
        if (column := extract.columns.get(name)) is None:
            found.append(Distribution(**about, rows=extract.taken, nulls=0))
            continue
        present, values = column.drop_null(), dict[str, Any]()
        if len(present) and name in COUNTERS and pa.types.is_integer(kind):  # bars would only show how long files are
            low, high = pc.min_max(present).as_py().values()
            values = {"facts": {"min": number(low), "max": number(high)}}
        elif len(present) and pa.types.is_boolean(kind):
            true = pc.sum(present).as_py()
            values = {"values": (Bar(label="true", rows=true), Bar(label="false", rows=len(present) - true))}
        elif len(present) and is_text(kind):
            counted = [(item["values"], item["counts"]) for item in pc.value_counts(present).to_pylist()]
            counted.sort(key=lambda pair: (-pair[1], pair[0]))
            others = counted[VALUES:]
            rest = count(sum(rows for _, rows in others), "row")
            notes = (f"and {count(len(others), 'other value')} in {rest}",) if others else ()
            values = {"values": tuple(Bar(label=text, rows=rows) for text, rows in counted[:VALUES]), "notes": notes}
            if others and counted[0][1] == 1:
                values = {"notes": (f"{len(counted):,} different values, each once",)}
        elif len(present):
            values = _count_numbers(present)
        told = {"rows": len(column), "nulls": column.null_count, "is_length": is_list(kind)}
        found.append(Distribution(**about, **told, **values))
    return found


def _count_numbers(column: pa.ChunkedArray) -> dict[str, Any]:
    whole = pa.types.is_integer(column.type)
    values = column.to_numpy().astype(np.float64)
    finite = np.sort(values[np.isfinite(values)])
    notes = (f"{count(len(values) - len(finite), 'row')} not finite",) if len(finite) < len(values) else ()
    if not len(finite):
        return {"notes": notes}
    facts = {"min": finite[0], "median": np.median(finite), "max": finite[-1]}
    if finite[0] == finite[-1]:
        return {"facts": {"always": number(float(finite[0]))}, "notes": notes}
    histogram = _draw_histogram(finite, whole)
    if histogram and histogram.beyond:
        notes = (*notes, f"{count(histogram.beyond, 'row')} beyond the axis")
    texts = {name: number(float(value)) for name, value in facts.items()}
    return {"histogram": histogram, "facts": texts, "notes": notes}


def _draw_histogram(ordered: NDArray[np.float64], whole: bool) -> Histogram | None:
    low, high = float(ordered[0]), float(ordered[-1])
    near, far = (float(value) for value in np.quantile(ordered, [TAIL, 1 - TAIL]))
    if far > near and high - low > SQUEEZE * (far - near):  # the tails would squeeze all others
        low, high = near, far
    if not high - low < WIDEST:
        return None
    first, stop = int(np.searchsorted(ordered, low, "left")), int(np.searchsorted(ordered, high, "right"))
    inside, beyond = ordered[first:stop], len(ordered) - (stop - first)
    single = high - low <= NARROWEST * max(abs(low), abs(high), TINY)
    if single or (whole and high - low < BARS):
        start = low if single else math.ceil(low)
        places = np.zeros(len(inside), np.int64) if single else (inside - start).astype(np.int64)
        bars = [Bar(label=number(float(start + i)), rows=rows) for i, rows in enumerate(np.bincount(places).tolist())]
        ends = start - 0.5, start + len(bars) - 0.5
        return Histogram(low=ends[0], high=ends[1], bars=tuple(bars), discrete=True, beyond=beyond)
    counts, edges = np.histogram(inside, bins=BARS, range=(low, high))
    labels = [f"{axis_value(a, high - low)} to {axis_value(b, high - low)}" for a, b in pairwise(edges.tolist())]
    bars = [Bar(label=label, rows=rows) for label, rows in zip(labels, counts.tolist(), strict=True)]
    return Histogram(low=low, high=high, bars=tuple(bars), discrete=False, beyond=beyond)


WIDTH, HEIGHT = 280, 124  # in units of the drawing, which is scaled to the width of its card
LEFT, RIGHT, TOP, BOTTOM = 2.0, 278.0, 18.0, 104.0
_LETTER = 7.0  # width of a digit, rounded up


def rectangles(data: Histogram) -> Iterator[tuple[Bar, float, float, float]]:
    """Yield each bar, its left edge, width and height."""
    step = (RIGHT - LEFT) / len(data.bars)
    width = min(step - min(1.0, step / 5), 40.0)
    for i, bar in enumerate(data.bars):
        height = (BOTTOM - TOP) * bar.rows / data.tallest
        # a single row among thousands stays visible
        yield bar, LEFT + (i + 0.5) * step - width / 2, width, max(height, 1.5) if bar.rows else height


def ticks(data: Histogram) -> list[tuple[float, str, str]]:
    """Return the place, the anchor and the text of each label under the axis."""
    bars, width = data.bars, data.high - data.low
    if data.discrete:
        step = (RIGHT - LEFT) / len(bars)
        every = max(1, math.ceil(_LETTER * (1 + max(len(bar.label) for bar in bars)) / step))
        return [(LEFT + (i + 0.5) * step, "middle", bars[i].label) for i in range(0, len(bars), every)]
    middle = (LEFT + RIGHT) / 2, "middle", (data.low + data.high) / 2
    places = (LEFT, "start", data.low), middle, (RIGHT, "end", data.high)
    return [(x, anchor, axis_value(value, width)) for x, anchor, value in places]
