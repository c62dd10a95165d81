"""`compare.html`: the comparison as one file that can be mailed; it asks for no other file and no network."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined

from pipeline.errors import OutputError
from pipeline.telemetry.compare.comparison import NONE, UNKNOWN, Comparison, Line
from pipeline.telemetry.compare.gate import Finding
from pipeline.telemetry.compare.measures import OF_THE_RUN
from pipeline.telemetry.compare.printing import METHOD, drift_cells, ratio, shown, span, unknown, value
from pipeline.telemetry.report.words import count, number

NAME = "compare.html"
_SECRET = re.compile(r"(?<=://)[^/\s@<>&\"'#;]+@")  # user and key in the URL of a bucket
_LESS_IS_BETTER = ("ms_row", "p50", "p95", "p99", "vram", "set_up", "errors", "seconds", "energy", "cost")
_MORE_IS_BETTER = ("rate",)


def write_page(path: str, comparison: Comparison, findings: list[Finding]) -> str:
    """Write the page, and return where it is.

    Raises:
        OutputError: the file cannot be written.
    """
    target = Path(path).expanduser()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(render(comparison, findings), encoding="utf-8", errors="replace")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"{path!r} cannot be written ({reason}); choose another file with --html.") from error
    return str(target)


def render(comparison: Comparison, findings: list[Finding]) -> str:
    """The page; the same runs give the same page."""
    facts = {"comparison": comparison, "findings": findings, "method": METHOD, "of_the_run": OF_THE_RUN}
    return _SECRET.sub("", _environment().get_template("compare/compare.html").render(facts))


def tone(line: Line) -> str:
    """Whether a difference is for the better or the worse; neither where it may be chance, or nobody can say."""
    name = "ms_row" if line.name.startswith("phase ") else line.name
    if line.change is None or line.difference == NONE or not line.change:
        return ""
    if line.difference == UNKNOWN or line.interval is None:
        return ""
    if name in _MORE_IS_BETTER:
        return "good" if line.change > 0 else "bad"
    if name in _LESS_IS_BETTER:
        return "good" if line.change < 0 else "bad"
    return ""


def _environment() -> Environment:
    """Templates that escape everything; the style sheet is the report's."""
    loaders = {"compare": PackageLoader(__package__, ""), "report": PackageLoader("pipeline.telemetry.report", "")}
    made = Environment(
        loader=PrefixLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": number}
    made.globals |= {
        "count": count,
        "drift_cells": drift_cells,
        "ratio": ratio,
        "shown": shown,
        "span": span,
        "tone": tone,
        "unknown": unknown,
        "value": value,
    }
    return made
