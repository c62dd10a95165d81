"""Print the table of accuracy figures, and compare them with an earlier table.

    python -m benchmarks.accuracy                                # all subjects, a Markdown table
    python -m benchmarks.accuracy --only sync,shots
    python -m benchmarks.accuracy --save before.json
    python -m benchmarks.accuracy --against before.json          # exit code 1 if a figure got worse

It needs the test material (`make test-material`), and leaves out subjects without it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import accuracy
from benchmarks.accuracy import AccuracyFigure

TOLERANCE = 1e-3  # figures are rounded to three digits in the table


def subjects() -> list[str]:
    """Return the modules that measure something."""
    names = (module.name for module in pkgutil.iter_modules(accuracy.__path__))
    return sorted(set(names) - {"__main__"})


def table(figures: Sequence[AccuracyFigure]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| subject | media | measure | Framekiln | library | better |", "|---|---|---|---|---|---|"]
    for figure in figures:
        library = "" if figure.library is None else f"{figure.library:.3g}"
        cells = figure.subject, figure.data, figure.measure, f"{figure.value:.3g}", library, figure.better
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def worse(before: Sequence[AccuracyFigure], after: Sequence[AccuracyFigure]) -> list[str]:
    """Return a line for each figure that got worse."""
    now = {figure.key: figure for figure in after}
    lines = []
    for old in before:
        new = now.get(old.key)
        sign = 1 if old.better == "higher" else -1
        if new and sign * (new.value - old.value) < -TOLERANCE:
            lines.append(f"worse: {old.key}: {old.value:.3g} before, {new.value:.3g} now")
    return lines


def main() -> None:
    """Measure, print, save and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="comma-separated subjects")
    parser.add_argument("--save", type=Path, help="write the figures as JSON")
    parser.add_argument("--against", type=Path, help="figures of an earlier measurement")
    options = parser.parse_args()
    figures: list[AccuracyFigure] = []
    for name in options.only.split(",") if options.only else subjects():
        try:
            figures += importlib.import_module(f"benchmarks.accuracy.{name}").measure()
        except pytest.skip.Exception as missing:
            print(f"{name} is left out: {missing}", file=sys.stderr)
    print(table(figures))
    if options.save:
        options.save.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    if options.against:
        before = [AccuracyFigure(**entry) for entry in json.loads(options.against.read_text())]
        lines = worse(before, figures)
        print("\n".join(lines) or "no figure got worse")
        sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
