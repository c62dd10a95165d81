"""`index.html` of a bench as one file: findings, cells, plots, layers, videos, clips, comparison and history."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from framekiln.lab.measure.layers import slowest
from framekiln.lab.output.cells import CellResult, MemoryPoint
from framekiln.lab.output.film_rows import VideoRow
from framekiln.lab.output.results import BenchReport
from framekiln.lab.sweep.batch_search import curves, knee
from framekiln.profiling.targets import Judgement
from framekiln.reporting.bench import tables
from framekiln.reporting.bench.history import SIDES, HistoryLine, steps
from framekiln.reporting.compare.comparison import FigurePair
from framekiln.reporting.compare.tables import figures_table
from framekiln.reporting.kit.lines import POINTS, Chart, Curve, draw_chart, draw_scatter
from framekiln.reporting.kit.pages import render_page
from framekiln.reporting.kit.texts import TextTable


def throughput(cells: Sequence[CellResult]) -> dict[str, Any] | None:
    """Return the plot of all curves with at least two batches; None without any."""
    named = defaultdict[str, list[dict[str, Any]]](list)
    for (model, settings), curve in curves(cells).items():
        best = knee(curve)
        for cell in curve if len(curve) > 1 else ():
            ms, rate, batch = cell.p50 or 0.0, cell.items_per_s or 0.0, cell.cell.batch
            about = {"title": f"batch {batch}, {ms:,.2f} ms a call, {rate:,.2f} items/s", "is_full": cell is best}
            title = settings.title.removeprefix("batch 1").removeprefix(", ")
            named[f"{model}, {title}"].append({"x": ms, "y": rate, "label": str(batch), **about})
    return draw_scatter("ms a call", "items/s", named)


def memory_charts(cells: Sequence[CellResult]) -> list[Chart]:
    """Return charts of memory over one call, for each model and settings, with a curve for each batch.

    One chart shows tensors. On a GPU another one shows the memory reserved by torch's allocator.
    """
    charts = []
    for (model, settings), group in curves(cells).items():
        title = f"{model}, {settings.title.removeprefix('batch 1').removeprefix(', ')}"
        for kind, name in (("allocated", "tensors of a call"), ("reserved", "reserved by torch")):
            measured = ((cell.cell.title, cell.memory.timeline) for cell in group if cell.memory is not None)
            known = {cell: [point for point in line if getattr(point, kind) is not None] for cell, line in measured}
            lines = {cell: _draw_curve(points, kind) for cell, points in known.items() if points}
            charts.append(draw_chart(f"{title}: {name}", "MB", lines))
    return [drawn for drawn in charts if drawn]


def frames_chart(rows: Sequence[VideoRow]) -> Chart | None:
    """Return the chart of latencies over the first object's frames after the prompted one, with a curve for each model.

    A value is the mean of the runs. None if no object was tracked over two such frames.
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


def _draw_curve(points: Sequence[MemoryPoint], kind: str) -> Curve:
    """Return memory of a kind over the length of a call in MB: at each point the last value before it."""
    times = np.linspace(0, max(points[-1].ms, 1e-9) * (1 + 1e-9), POINTS)
    values = np.array([getattr(point, kind) for point in points]) / 1e6
    shown = values[np.searchsorted([point.ms for point in points[1:]], times, "right")]
    return Curve(total=shown, count=np.ones(POINTS), least=shown.min(), most=values.max())


def _draw_history(entries: Sequence[HistoryLine]) -> Chart | None:
    lines = defaultdict[str, Curve](Curve)
    for place, entry in enumerate(entries):
        for name, figures in entry.cells.items():
            if (value := figures.get("p50")) is not None:
                lines[name].add(round(place * (POINTS - 1) / max(1, len(entries) - 1)), value)
    return draw_chart("Median latency", "ms", lines, marks=True) if len(entries) > 1 else None


PAGE = "index.html"


def render(
    report: BenchReport,
    changes: Sequence[FigurePair] = (),
    verdicts: Sequence[Judgement] = (),
    entries: Sequence[HistoryLine] = (),
) -> str:
    """Return the page; the same figures give the same page."""
    named = [*(one.name for one in report.models), *(one.model for one in report.video)]
    named += [one.model for one in report.extra.clips]
    notes: dict[str, list[str]] = {}
    for cell in report.cells:
        for note in cell.notes:
            notes.setdefault(note, []).append(f"{cell.model}, {cell.cell.title}")
    values = {
        "report": report,
        "names": ", ".join(dict.fromkeys([*named, *report.extra.nsight])),
        "changes": changes and figures_table(changes, SIDES, "Cell"),
        "verdicts": verdicts,
        "entries": entries,
        "history": TextTable(title="What each change brought", columns=tables.HISTORY, items=steps(entries)),
        "facts": _list_facts(report),
        "cells": tables.cells_table(report),
        "notes": notes,
        "scatter": throughput(report.cells),
        "memory": memory_charts(report.cells),
        "layers": [
            (cell, TextTable(title=f"Layers of {cell.model}", columns=tables.LAYERS, items=cell.layers))
            for cell in report.cells
            if cell.layers
        ],
        "slowest": slowest,
        "frames": frames_chart(report.video),
        "drawn": _draw_history(entries),
        "sections": tables.sections(report),
        "clips": report.extra.clips,
    }
    return render_page("bench.html", values)


def _list_facts(report: BenchReport) -> dict[str, str]:
    about = report.environment
    others = about.get("others")
    known = {
        "Device": about.get("gpu") or about.get("processor"),
        "Driver": about.get("driver"),
        "CUDA, cuDNN": ", ".join(str(about[name]) for name in ("cuda", "cudnn") if about.get(name)),
        "torch": about.get("torch"),
        "Threads": f"{about.get('threads')} of {about.get('cores')} cores",
        "Others before": f"{others['cores']:.1f} of {others['machine_cores']} cores" if others else "",
        "Measured": report.made,
        "Command": " ".join(report.argv),
    }
    return {name: str(value) for name, value in known.items() if value}
