"""`compare.html`: the comparison as one file."""

from pathlib import Path

from framekiln.contract.errors import OutputError
from framekiln.reporting.compare import cells
from framekiln.reporting.compare.comparison import NONE, UNKNOWN, Comparison, FigurePair
from framekiln.reporting.compare.gate import Finding
from framekiln.reporting.compare.metrics import OF_THE_RUN
from framekiln.reporting.compare.verdict import verdict
from framekiln.reporting.templating import render_page

_LESS_IS_BETTER = ("ms_row", "p50", "p95", "p99", "vram", "set_up", "errors", "seconds", "energy", "cost")
_MORE_IS_BETTER = ("rate",)
_LONGEST = 200  # characters of a file's name; file systems take 255 bytes


def default_path(comparison: Comparison) -> str:
    """Return a file beside the first output on a disk, named by the outputs; in this folder if all are in buckets."""
    paths = [side.runs[0].path.rstrip("/") for side in comparison.sides]
    names = [path.partition("?")[0].rpartition("/")[2] for path in paths]
    file = f"compare-{'-'.join(names)}"[:_LONGEST] + ".html"
    here = next((Path(path).expanduser().absolute() for path in paths if "://" not in path), None)
    return str(here.resolve().parent / file) if here else file


def write_page(path: str, comparison: Comparison, findings: list[Finding]) -> str:
    """Write the page and return its path.

    Raises:
        OutputError: the file cannot be written.
    """
    target = Path(path).expanduser()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(render(comparison, findings), encoding="utf-8", errors="replace")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"{path!r} cannot be written ({reason}); choose another file with --html."
        raise OutputError(message, code="FK-PAGE-NOT-WRITABLE") from error
    return str(target)


def render(comparison: Comparison, findings: list[Finding]) -> str:
    """Return the page; the same runs give the same page."""
    values = {
        "comparison": comparison,
        "findings": findings,
        "of_the_run": OF_THE_RUN,
        "cells": cells,
        "tone": tone,
        "verdict": verdict,
    }
    return render_page("compare.html", values)


def tone(figure: FigurePair) -> str:
    """Return `good` or `bad` for a difference that chance does not explain, else nothing."""
    name = "ms_row" if figure.name.startswith("phase ") else figure.name
    if not figure.change or figure.interval is None or figure.difference in (NONE, UNKNOWN):
        return ""
    if name not in (*_MORE_IS_BETTER, *_LESS_IS_BETTER):
        return ""
    return "good" if (figure.change > 0) == (name in _MORE_IS_BETTER) else "bad"
