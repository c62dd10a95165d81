"""Line charts over time; `charts.html` draws them as SVG.

The drawing is stretched to the width of its card, so labels stand beside it. Curves differ in dashes as well as in
colour.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from framekiln.reporting.formatting import MISSING, coordinate, number

POINTS = 240  # of a curve
HEIGHT = 100.0
CLASSES = 8  # of curves, in the style sheet
TIMES = 9  # of a curve's values in the table
_GAP = 12  # points; a longer gap between dense samples is left open


@dataclass(kw_only=True)
class Curve:
    """Samples of one quantity over time: sums and counts by point, and extremes."""

    total: NDArray[np.float64] = field(default_factory=lambda: np.zeros(POINTS))
    count: NDArray[np.float64] = field(default_factory=lambda: np.zeros(POINTS))
    least: float = math.inf
    most: float = -math.inf

    def add(self, point: int, value: float) -> None:
        """Add a sample at one of `POINTS` times; a value that is not finite is left out."""
        if math.isfinite(value):
            self.total[point] += value
            self.count[point] += 1
            self.least, self.most = min(self.least, value), max(self.most, value)

    @property
    def values(self) -> NDArray[np.float64]:
        """The mean at each of `POINTS` times, over the whole run; NaN where there is no sample."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.total / self.count

    @property
    def mean(self) -> float:
        """The mean of all samples."""
        return float(self.total.sum() / self.count.sum())


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Quantities of one unit."""

    title: str
    unit: str
    top: float  # of the axis, which starts at 0
    curves: Mapping[str, Curve]  # by name
    left_out: int  # curves that are not drawn
    limit: float | None = None  # drawn as a line


def height(value: float, top: float) -> float:
    """Return the place of a value under the top of the axis."""
    return HEIGHT * (1 - min(1.0, max(0.0, value / top)))


def summary(chart: Chart) -> str:
    """Return a chart in words: the range and mean of each curve."""
    parts = [
        f"{name}: {_text(curve.least)} to {_text(curve.most)}, mean {_text(curve.mean)}"
        for name, curve in chart.curves.items()
    ]
    return f"{chart.title} in {chart.unit} over time. {'; '.join(parts)}."


def curve_values(curve: Curve) -> list[str]:
    """Return a curve's values at evenly spaced times from start to end, for the table.

    A value is that of the nearest sample within a step of the table, else a dash.
    """
    values = curve.values
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return [MISSING] * TIMES
    wanted = np.linspace(0, POINTS - 1, TIMES)
    nearest = known[np.abs(known[None, :] - wanted[:, None]).argmin(axis=1)]
    near = np.abs(nearest - wanted) <= POINTS / TIMES / 2
    return [_text(float(values[point])) if close else MISSING for point, close in zip(nearest, near, strict=True)]


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
    """Return a path of lines without length at each sample, which round ends draw as dots that are not stretched."""
    places = np.flatnonzero(np.isfinite(values := curve.values)).tolist()
    return "".join(f"M{point} {coordinate(height(float(values[point]), top))}h0" for point in places)


def _text(value: float) -> str:
    return number(float(f"{value:.3g}"))


def round_up(value: float) -> float:
    """Return the end of an axis: the next 1, 2, 2.5, 5 or 10 times a power of ten."""
    if not value > 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 2, 2.5, 5, 10) if value <= step * size * (1 + 1e-9))
