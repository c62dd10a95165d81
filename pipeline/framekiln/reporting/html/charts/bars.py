"""Places of a histogram's parts; `charts.html` draws them as inline SVG, sharp in print and coloured by the page."""

import math
from collections.abc import Iterator

from framekiln.reporting.formatting import axis_value, number
from framekiln.reporting.html.charts.histograms import Bar, Histogram

WIDTH, HEIGHT = 280, 124  # in units of the drawing, which is scaled to the width of its card
LEFT, RIGHT, TOP, BOTTOM = 2.0, 278.0, 18.0, 104.0
_ASIDE = 16.0  # at an end of the axis, for a bar of the values beyond it
_LETTER = 7.0  # width of a digit, rounded up


def _ends(data: Histogram) -> tuple[float, float]:
    """Return the left and right end of the axis."""
    return LEFT + _ASIDE * bool(data.below), RIGHT - _ASIDE * bool(data.above)


def rectangles(data: Histogram) -> Iterator[tuple[str, Bar, float, float, float]]:
    """Yield the CSS class of each bar, its label and rows, its left edge, width and height."""
    left, right = _ends(data)
    step, aside = (right - left) / len(data.bars), _ASIDE - 6
    width = min(step - min(1.0, step / 5), 40.0)
    places = [("bar", bar, left + (i + 0.5) * step, width) for i, bar in enumerate(data.bars)]
    if data.below:
        places.append(("beyond", Bar(label=f"under {number(data.low)}", rows=data.below), LEFT + aside / 2, aside))
    if data.above:
        places.append(("beyond", Bar(label=f"over {number(data.high)}", rows=data.above), RIGHT - aside / 2, aside))
    for css_class, bar, middle, wide in places:
        height = (BOTTOM - TOP) * bar.rows / data.tallest
        # a single row among thousands stays visible
        yield css_class, bar, middle - wide / 2, wide, max(height, 1.5) if bar.rows else height


def median_x(data: Histogram) -> float | None:
    """Return the place of the median; None outside of the axis, and for a single bar."""
    if not data.low <= data.median <= data.high or len(data.bars) == 1:
        return None
    left, right = _ends(data)
    return left + (right - left) * (data.median - data.low) / (data.high - data.low)


def ticks(data: Histogram) -> list[tuple[float, str, str]]:
    """Return the place, the anchor and the text of each label under the axis."""
    bars, width, (left, right) = data.bars, data.high - data.low, _ends(data)
    if data.discrete:
        step = (right - left) / len(bars)
        every = max(1, math.ceil(_LETTER * (1 + max(len(bar.label) for bar in bars)) / step))
        return [(left + (i + 0.5) * step, "middle", bars[i].label) for i in range(0, len(bars), every)]
    middle = (left + right) / 2, "middle", (data.low + data.high) / 2
    places = (left, "start", data.low), middle, (right, "end", data.high)
    return [(x, anchor, axis_value(value, width)) for x, anchor, value in places]
