"""Plots of a bench, which `kit.html` draws as SVG.

Throughput against latency, memory over a call, latency over a video, and a history.
"""

from collections import defaultdict
from collections.abc import Sequence

from framekiln.lab.output.cells import CellResult, Memory, MemoryPoint
from framekiln.lab.sav.measure import VideoRow
from framekiln.lab.sweep.batch_search import curves, knee
from framekiln.reporting.bench.history import HistoryLine
from framekiln.reporting.kit.lines import POINTS, Chart, Curve, Dot, Scatter, draw_chart, draw_scatter


def throughput(cells: Sequence[CellResult]) -> Scatter | None:
    """Return the plot of all curves with two batches or more; None without any."""
    named = {}
    for (model, settings), curve in curves(cells).items():
        best = knee(curve)
        title = settings.title.removeprefix("batch 1").removeprefix(", ")
        named[f"{model}, {title}"] = [_dot(cell, is_knee=cell is best) for cell in curve]
    return draw_scatter("ms a call", "items/s", {name: dots for name, dots in named.items() if len(dots) > 1})


def memory_charts(cells: Sequence[CellResult]) -> list[Chart]:
    """Return charts of memory over one call for each model and settings, with a curve a batch.

    One is of tensors. On a GPU another one is of what torch's allocator has reserved.
    """
    charts = []
    for (model, settings), group in curves(cells).items():
        title = f"{model}, {settings.title.removeprefix('batch 1').removeprefix(', ')}"
        for kind, name in (("allocated", "tensors of a call"), ("reserved", "reserved by torch")):
            timelines = {cell.cell.title: _known(cell.memory, kind) for cell in group}
            lines = {cell: _curve(points, kind) for cell, points in timelines.items() if points}
            charts.append(draw_chart(f"{title}: {name}", "MB", lines))
    return [drawn for drawn in charts if drawn]


def frames_chart(rows: Sequence[VideoRow]) -> Chart | None:
    """Return the chart of latencies over the first object's frames after the prompted one, a curve a model.

    A value is the mean of the runs. None where no object was tracked over two such frames.
    """
    tracked = [(row, row.latency_ms.values) for row in rows if row.latency_ms and len(row.latency_ms.values) > 1]
    if not tracked:
        return None
    first, lines = tracked[0][0], defaultdict[str, Curve](Curve)
    for row, values in tracked:
        if (row.video, row.object) == (first.video, first.object):
            for place, value in enumerate(values):
                lines[row.model].add(round(place * (POINTS - 1) / (len(values) - 1)), value)
    return draw_chart(f"{first.video}, object {first.object}", "ms", lines)


def history_chart(entries: Sequence[HistoryLine]) -> Chart | None:
    """Return the chart of median latencies over a history, a curve a cell; None with fewer than two benches."""
    lines = defaultdict[str, Curve](Curve)
    for place, entry in enumerate(entries):
        for name, figures in entry.cells.items():
            if (value := figures.get("p50")) is not None:
                lines[name].add(round(place * (POINTS - 1) / max(1, len(entries) - 1)), value)
    return draw_chart("Median latency", "ms", lines, marks=True) if len(entries) > 1 else None


def _dot(cell: CellResult, *, is_knee: bool) -> Dot:
    ms, rate = cell.p50 or 0.0, cell.items_per_s or 0.0
    title = f"batch {cell.cell.batch}, {ms:,.2f} ms a call, {rate:,.2f} items/s"
    return Dot(x=ms, y=rate, label=str(cell.cell.batch), title=title, is_full=is_knee)


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
