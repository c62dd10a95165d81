"""Plots of a bench, which `bench.html` draws as SVG.

Throughput against latency, memory over a call, latency over a video, and a history.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from framekiln.lab.output.cells import CellResult, Memory, MemoryPoint
from framekiln.lab.sav.measure import VideoRow
from framekiln.lab.sweep.batch_search import curves, knee
from framekiln.reporting.bench.history import Entry
from framekiln.reporting.html.charts.lines import CLASSES, POINTS, Chart, Curve, round_up

WIDTH, HEIGHT = 640.0, 260.0  # in units of the drawing
LEFT, RIGHT, TOP, BOTTOM = 64.0, 620.0, 14.0, 222.0


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One batch of a curve."""

    x: float
    y: float
    label: str  # the batch
    title: str  # in words
    is_knee: bool


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """Curves of throughput against latency; dots of a curve in the order of their batches."""

    curves: dict[str, tuple[Dot, ...]]
    x_ticks: tuple[tuple[float, float], ...]  # place and value
    y_ticks: tuple[tuple[float, float], ...]
    left_out: int  # curves

    @property
    def knees(self) -> list[str]:
        """The knee of each curve in words."""
        return [f"{name}: {dot.title}" for name, dots in self.curves.items() for dot in dots if dot.is_knee]


def throughput(cells: Sequence[CellResult]) -> Scatter | None:
    """Return the plot of all curves with two batches or more; None without any."""
    found = {key: curve for key, curve in curves(cells).items() if len(curve) > 1}
    drawn = dict(list(found.items())[:CLASSES])
    if not drawn:
        return None
    everything = [cell for curve in drawn.values() for cell in curve]
    right = round_up(max(cell.p50 or 0.0 for cell in everything))
    top = round_up(max(cell.items_per_s or 0.0 for cell in everything))
    named = {}
    for (model, settings), curve in drawn.items():
        best = knee(curve)
        title = settings.title.removeprefix("batch 1").removeprefix(", ")
        named[f"{model}, {title}"] = tuple(_dot(cell, right, top, is_knee=cell is best) for cell in curve)
    shares = (0.0, 0.5, 1.0)
    return Scatter(
        curves=named,
        x_ticks=tuple((LEFT + share * (RIGHT - LEFT), share * right) for share in shares),
        y_ticks=tuple((BOTTOM - share * (BOTTOM - TOP), share * top) for share in shares),
        left_out=len(found) - len(drawn),
    )


def memory_charts(cells: Sequence[CellResult]) -> list[Chart]:
    """Return charts of memory over one call for each model and settings, with a curve a batch.

    One is of tensors. On a GPU another one is of what torch's allocator has reserved.
    """
    charts = []
    for (model, settings), group in curves(cells).items():
        title = f"{model}, {settings.title.removeprefix('batch 1').removeprefix(', ')}"
        for kind, name in (("allocated", "tensors of a call"), ("reserved", "reserved by torch")):
            timelines = {cell.cell.title: _known(cell.memory, kind) for cell in group}
            known = {cell: points for cell, points in timelines.items() if points}
            lines = {cell: _curve(points, kind) for cell, points in list(known.items())[:CLASSES]}
            if lines:
                top = round_up(max(curve.most for curve in lines.values()))
                left_out = len(known) - len(lines)
                charts.append(Chart(title=f"{title}: {name}", unit="MB", top=top, curves=lines, left_out=left_out))
    return charts


def frames_chart(rows: Sequence[VideoRow]) -> Chart | None:
    """Return the chart of latencies over the first object's frames after the prompted one, a curve a model.

    A value is the mean of the runs. None where no object was tracked over two such frames.
    """
    tracked = [row for row in rows if row.latency_ms is not None and len(row.latency_ms.values) > 1]
    first = [row for row in tracked if (row.video, row.object) == (tracked[0].video, tracked[0].object)]
    lines: dict[str, Curve] = {}
    for row in first:
        values = row.latency_ms.values if row.latency_ms is not None else ()
        curve = lines.setdefault(row.model, Curve())
        for number, value in enumerate(values):
            curve.add(round(number * (POINTS - 1) / (len(values) - 1)), value)
    drawn = dict(list(lines.items())[:CLASSES])
    if not drawn:
        return None
    top = round_up(max(curve.most for curve in drawn.values()))
    title = f"{first[0].video}, object {first[0].object}"
    return Chart(title=title, unit="ms", top=top, curves=drawn, left_out=len(lines) - len(drawn))


def history_chart(entries: Sequence[Entry]) -> Chart | None:
    """Return the chart of median latencies over a history, a curve a cell; None with fewer than two benches."""
    if len(entries) < 2:
        return None
    lines: dict[str, Curve] = {}
    for number, entry in enumerate(entries):
        for name, figures in entry.cells.items():
            if (value := figures.get("p50")) is not None:
                lines.setdefault(name, Curve()).add(round(number * (POINTS - 1) / (len(entries) - 1)), value)
    drawn = dict(list(lines.items())[:CLASSES])
    if not drawn:
        return None
    top = round_up(max(curve.most for curve in drawn.values()))
    return Chart(title="Median latency", unit="ms", top=top, curves=drawn, left_out=len(lines) - len(drawn))


def _dot(cell: CellResult, right: float, top: float, *, is_knee: bool) -> Dot:
    latency, rate = cell.p50 or 0.0, cell.items_per_s or 0.0
    return Dot(
        x=LEFT + latency / right * (RIGHT - LEFT),
        y=BOTTOM - rate / top * (BOTTOM - TOP),
        label=str(cell.cell.batch),
        title=f"batch {cell.cell.batch}, {latency:,.2f} ms a call, {rate:,.2f} items/s",
        is_knee=is_knee,
    )


def _known(memory: Memory | None, kind: str) -> Sequence[MemoryPoint]:
    """Return the points with a kind of memory."""
    return [point for point in memory.timeline if getattr(point, kind) is not None] if memory is not None else []


def _curve(points: Sequence[MemoryPoint], kind: str) -> Curve:
    """Return memory of a kind over the length of a call in MB: at each place the last value before it."""
    curve, length = Curve(), max(points[-1].ms, 1e-9)
    place = 0
    for number in range(POINTS):
        while place + 1 < len(points) and points[place + 1].ms <= number / (POINTS - 1) * length * (1 + 1e-9):
            place += 1
        curve.add(number, getattr(points[place], kind) / 1e6)
    curve.most = max(getattr(point, kind) for point in points) / 1e6
    return curve
