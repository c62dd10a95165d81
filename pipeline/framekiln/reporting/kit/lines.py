"""Curves over time, which `kit.html` draws as SVG.

The drawing is stretched to its card's width, so labels stand beside it. Curves differ in dashes as well as in colour.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.reporting.kit.texts import MISSING, TextTable, coordinate, number, plain_table

POINTS = 240  # points of a curve
HEIGHT = 100.0
CLASSES = 8  # classes of curves, in the style sheet
TIMES = 9  # times of a curve's values in the table
_GAP = 12  # points; a longer gap between dense samples stays open


@dataclass(kw_only=True)
class Curve:
    """Samples of one quantity over time: sums and counts by point, and extremes."""

    total: NDArray[np.float64] = field(default_factory=lambda: np.zeros(POINTS))
    count: NDArray[np.float64] = field(default_factory=lambda: np.zeros(POINTS))
    least: float = math.inf
    most: float = -math.inf

    def add(self, point: int, value: float) -> None:
        """Add a sample at one of `POINTS` times; non-finite values are left out."""
        if math.isfinite(value):
            self.total[point] += value
            self.count[point] += 1
            self.least, self.most = min(self.least, value), max(self.most, value)

    @property
    def values(self) -> NDArray[np.float64]:
        """The mean at each of `POINTS` times, over the whole run; NaN without a sample."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.total / self.count

    @property
    def mean(self) -> float:
        return float(self.total.sum() / self.count.sum())


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Quantities of one unit."""

    title: str
    unit: str
    top: float  # top of the axis, which starts at 0
    curves: Mapping[str, Curve]  # by name
    left_out: int  # curves that are not drawn
    limit: float | None = None  # drawn as a line
    marks: bool = False  # samples are drawn as dots


def draw_chart(
    title: str, unit: str, curves: Mapping[str, Curve], *, limit: float | None = None, marks: bool = False
) -> Chart | None:
    """Return a chart of the first curves with a sample; None without any."""
    known = {name: curve for name, curve in curves.items() if curve.count.any()}
    if not known:
        return None
    drawn = dict(list(known.items())[:CLASSES])
    top = 100.0 if unit == "%" else round_up(max(limit or 0.0, *(curve.most for curve in drawn.values())))
    left_out = len(known) - len(drawn)
    return Chart(title=title, unit=unit, top=top, curves=drawn, left_out=left_out, limit=limit, marks=marks)


def draw_scatter(x_unit: str, y_unit: str, curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any] | None:
    """Return a plot of the first curves of one quantity against another, from 0 on; None without any.

    A dot has `x`, `y`, a `label` beside it, a `title` in words, and `is_full` for the plot's main dots.
    """
    drawn = dict(list(curves.items())[:CLASSES])
    dots = [(name, dot) for name, of_curve in drawn.items() for dot in of_curve]
    if not dots:
        return None
    right, top = (round_up(max(dot[axis] for _, dot in dots)) for axis in ("x", "y"))
    full = [f"{name}: {dot['title']}" for name, dot in dots if dot["is_full"]]
    about = {"x_unit": x_unit, "y_unit": y_unit, "right": right, "top": top, "full": full}
    return about | {"curves": drawn, "left_out": len(curves) - len(drawn)}


def height(value: float, top: float) -> float:
    """Return the position of a value below the top of the axis."""
    return HEIGHT * (1 - min(1.0, max(0.0, value / top)))


def summary(chart: Chart) -> str:
    """Return a chart in words: the range and mean of each curve."""
    curves = {name: map(_write, (curve.least, curve.most, curve.mean)) for name, curve in chart.curves.items()}
    parts = [f"{name}: {least} to {most}, mean {mean}" for name, (least, most, mean) in curves.items()]
    return f"{chart.title} in {chart.unit} over time. {'; '.join(parts)}."


def values(chart: Chart) -> TextTable:
    """Return the extremes of each curve, and its values at evenly spaced times from start to end."""
    heads = ["Curve", "Least", "Mean", "Most", "Start", *map(str, range(2, TIMES)), "End"]
    wanted, rows = np.linspace(0, POINTS - 1, TIMES), []
    for name, curve in chart.curves.items():
        values = curve.values
        known = np.flatnonzero(np.isfinite(values))
        nearest = known[np.abs(known[None, :] - wanted[:, None]).argmin(axis=1)]
        near = np.abs(nearest - wanted) <= POINTS / TIMES / 2  # a time without a sample close to it gets a dash
        texts = [_write(float(values[at])) if close else MISSING for at, close in zip(nearest, near, strict=True)]
        rows.append((name, curve.least, curve.mean, curve.most, *texts))
    return plain_table(f"{chart.title}, values", heads, rows)


def path(curve: Curve, top: float) -> str:
    """Return a curve's path: a line between close samples, a new start after a gap."""
    values = curve.values
    known = np.flatnonzero(np.isfinite(values))
    gap = max(_GAP, 3 * float(np.median(np.diff(known)))) if len(known) > 1 else _GAP
    commands, before = [], -2 * POINTS
    for point in known.tolist():
        y = coordinate(height(float(values[point]), top))
        commands.append(f"L{point} {y}" if point - before <= gap else f"M{point} {y}h.5")
        before = point
    return "".join(commands)


def marks(curve: Curve, top: float) -> str:
    """Return a path of zero-length lines at the samples, drawn by round ends as unstretched dots."""
    places = np.flatnonzero(np.isfinite(values := curve.values)).tolist()
    return "".join(f"M{point} {coordinate(height(float(values[point]), top))}h0" for point in places)


def _write(value: float) -> str:
    return number(float(f"{value:.3g}"))


def round_up(value: float) -> float:
    """Return the end of an axis: the next 1, 2, 2.5, 5 or 10 times a power of ten."""
    if not value > 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 2, 2.5, 5, 10) if value <= step * size * (1 + 1e-9))
