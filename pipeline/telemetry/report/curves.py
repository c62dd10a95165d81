"""Curves over time as SVG that is stretched to the page's width; words stand beside it, so that they are not stretched.

A curve is told from another by its dashes as well as by its colour.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from pipeline.telemetry.report.machines import POINTS, Chart, Curve
from pipeline.telemetry.report.words import coordinate as _n
from pipeline.telemetry.report.words import number

HEIGHT = 100.0
LOOKS = 8  # of curves, in the style sheet
MOMENTS = 9  # of a curve, in the table
_GAP = 12  # points without a sample over which no line is drawn, where samples are dense


def curves(chart: Chart) -> Markup:
    """The plot: grid lines at a half and at the top, the limit, the curves from the lowest to the highest."""
    grid = Markup("").join(
        Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(POINTS, _n(y), _n(y))
        for y in (0.0, HEIGHT / 2, HEIGHT)
    )
    drawn = [_curve(chart, curve, place) for place, curve in enumerate(chart.curves)]
    template = Markup(
        '<svg class="plot" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}{}{}</svg>'
    )
    parts = (grid, _limit(chart), Markup("").join(reversed(drawn)))
    return template.format(POINTS, int(HEIGHT), summary(chart), *parts)


def key(place: int) -> Markup:
    """A curve's dashes, for the legend."""
    template = Markup(
        '<svg class="key" viewBox="0 0 28 8" aria-hidden="true"><path class="curve c{}" d="M0 4H28"/></svg>'
    )
    return template.format(place % LOOKS)


def summary(chart: Chart) -> str:
    """A chart in words."""
    said = [
        f"{one.name}: {number(_short(one.least))} to {number(_short(one.most))}, mean {number(_short(one.mean))}"
        for one in chart.curves
    ]
    return f"{chart.title} in {chart.unit} over time. {'; '.join(said)}."


def moments(curve: Curve) -> list[str]:
    """A curve's values at evenly spaced moments from the start to the end, for the table; a dash where none is known.

    A value is that of the nearest sample within a table's step.
    """
    known = np.flatnonzero(np.isfinite(curve.values))
    if not len(known):
        return ["–"] * MOMENTS
    wanted = np.linspace(0, POINTS - 1, MOMENTS)
    nearest = known[np.abs(known[None, :] - wanted[:, None]).argmin(axis=1)]
    near = np.abs(nearest - wanted) <= POINTS / MOMENTS / 2
    return [number(_short(float(curve.values[at]))) if close else "–" for at, close in zip(nearest, near, strict=True)]


def _curve(chart: Chart, curve: Curve, place: int) -> Markup:
    path = "".join(_pieces(curve.values, chart.top))
    template = Markup('<path class="curve c{}" d="{}"><title>{}</title></path>')
    return template.format(place % LOOKS, path, curve.name)


def _pieces(values: NDArray[np.float64], top: float) -> Iterator[str]:
    """Where samples follow each other as closely as they mostly do a line, elsewhere a new beginning."""
    known = np.flatnonzero(np.isfinite(values))
    gap = max(_GAP, 3 * float(np.median(np.diff(known)))) if len(known) > 1 else _GAP
    before = -2 * POINTS
    for at in known.tolist():
        y = HEIGHT * (1 - min(1.0, max(0.0, float(values[at]) / top)))
        yield f"L{at} {_n(y)}" if at - before <= gap else f"M{at} {_n(y)}h.5"
        before = at


def _limit(chart: Chart) -> Markup:
    if not chart.limit:
        return Markup("")
    y = _n(HEIGHT * (1 - min(1.0, chart.limit / chart.top)))
    return Markup('<line class="limit" x1="0" x2="{}" y1="{}" y2="{}"/>').format(POINTS, y, y)


def _short(value: float) -> float:
    return float(f"{value:.3g}")
