"""`index.html` of a bench as one file: findings, cells, plots, layers, videos, clips, comparison and history."""

from collections.abc import Sequence
from pathlib import Path

from framekiln.lab.measure.layers import slowest
from framekiln.lab.output.files import writing
from framekiln.lab.output.results import BenchReport
from framekiln.lab.output.tables import TOO_FEW
from framekiln.lab.samples import clip_rows, video_rows
from framekiln.reporting.bench import cells as texts
from framekiln.reporting.bench import history, plots
from framekiln.reporting.bench.history import Entry
from framekiln.reporting.bench.pictures import PictureRow
from framekiln.reporting.bench.regression import Change
from framekiln.reporting.bench.sections import model_names, sections
from framekiln.reporting.compare.gate import Finding
from framekiln.reporting.html.charts import lines
from framekiln.reporting.templating import render_page

PAGE = "index.html"


def write_page(
    path: Path,
    report: BenchReport,
    changes: Sequence[Change] = (),
    verdicts: Sequence[Finding] = (),
    entries: Sequence[Entry] = (),
    pictures: Sequence[PictureRow] = (),
) -> Path:
    """Write the page, and return its path.

    Raises:
        OutputError: it cannot be written.
    """
    with writing(path):
        path.write_text(render(report, changes, verdicts, entries, pictures), encoding="utf-8", errors="replace")
    return path


def render(
    report: BenchReport,
    changes: Sequence[Change] = (),
    verdicts: Sequence[Finding] = (),
    entries: Sequence[Entry] = (),
    pictures: Sequence[PictureRow] = (),
) -> str:
    """Return the page; the same figures give the same page."""
    rows = [texts.cell_row(cell) for cell in report.cells if cell.outcome == "ok"]
    columns = texts.with_values(texts.HEADS, rows, TOO_FEW)
    values = {
        "report": report,
        "names": model_names(report),
        "changes": changes,
        "verdicts": verdicts,
        "entries": entries,
        "pictures": pictures,
        "history": history,
        "facts": texts.facts(report),
        "texts": texts,
        "columns": columns,
        "cell_heads": ["Model", "Cell", *(texts.HEADS[place] for place in columns)],
        "plots": plots,
        "lines": lines,
        "scatter": plots.throughput(report.cells),
        "memory": plots.memory_charts(report.cells),
        "frames": plots.frames_chart(video_rows(report)),
        "drawn": plots.history_chart(entries),
        "slowest": slowest,
        "sections": sections(report),
        "clips": clip_rows(report),
    }
    return render_page("bench.html", values)
