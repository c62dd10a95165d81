"""`index.html` of a bench as one file: findings, cells, plots, layers, videos, clips, comparison and history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.bench.measure.layers import slowest
from pipeline.bench.output.files import writing
from pipeline.bench.output.results import BenchReport
from pipeline.reporting.bench import cells as texts
from pipeline.reporting.bench import history, plots
from pipeline.reporting.bench.history import Entry
from pipeline.reporting.bench.regression import Change
from pipeline.reporting.bench.sections import clip_rows, model_names, sections
from pipeline.reporting.compare.gate import Finding
from pipeline.reporting.html.charts import lines
from pipeline.reporting.templating import render_page

PAGE = "index.html"


def write_page(
    path: Path,
    report: BenchReport,
    changes: Sequence[Change] = (),
    verdicts: Sequence[Finding] = (),
    entries: Sequence[Entry] = (),
) -> Path:
    """Write the page, and return its path.

    Raises:
        OutputError: it cannot be written.
    """
    with writing(path):
        path.write_text(render(report, changes, verdicts, entries), encoding="utf-8", errors="replace")
    return path


def render(
    report: BenchReport,
    changes: Sequence[Change] = (),
    verdicts: Sequence[Finding] = (),
    entries: Sequence[Entry] = (),
) -> str:
    """Return the page; the same figures give the same page."""
    values = {
        "report": report,
        "names": model_names(report),
        "changes": changes,
        "verdicts": verdicts,
        "entries": entries,
        "history": history,
        "facts": texts.facts(report),
        "texts": texts,
        "plots": plots,
        "lines": lines,
        "scatter": plots.throughput(report.cells),
        "memory": plots.memory_charts(report.cells),
        "drawn": plots.history_chart(entries),
        "slowest": slowest,
        "sections": sections(report),
        "clips": clip_rows(report),
    }
    return render_page("bench.html", values)
