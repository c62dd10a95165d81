"""The history of a model's benches: `runs.jsonl`, a line a bench, with what was changed and what it brought."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pipeline.bench.output.files import writing
from pipeline.bench.output.results import BenchReport
from pipeline.contract.errors import ConfigError
from pipeline.reporting.bench.regression import FIGURES

SHOWN = ("p50", "rate", "peak_gb")
"""Figures of a line; the rest is in the bench's own files."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line: a bench with its note and the figures of its cells."""

    made: str
    note: str
    device: str
    torch: str
    cells: Mapping[str, Mapping[str, float | None]]  # by model and cell, figures by name


def entry_of(report: BenchReport, note: str) -> Entry:
    """Return the line of a bench."""
    cells = {
        f"{cell.model}, {cell.cell.title}": {name: FIGURES[name][1](cell) for name in SHOWN}
        for cell in report.cells
        if cell.outcome == "ok"
    }
    about = report.environment
    device = str(about.get("gpu") or about.get("processor") or about.get("device") or "")
    return Entry(made=report.made, note=note, device=device, torch=str(about.get("torch") or ""), cells=cells)


def append(path: Path, entry: Entry) -> list[Entry]:
    """Add a line to a history, and return all its lines.

    Raises:
        ConfigError: the file is no history.
        OutputError: it cannot be written.
    """
    with writing(path):
        entries = [*read(path), entry] if path.exists() else [entry]
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(vars(entry), ensure_ascii=False) + "\n")
    return entries


def read(path: Path) -> list[Entry]:
    """Read a history.

    Raises:
        ConfigError: the file is no history.
    """
    try:
        lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [Entry(**line) for line in lines]
    except (OSError, RecursionError, ValueError, TypeError) as error:
        raise ConfigError(
            f"--history {str(path)!r} is no history of framemill bench ({error}); give another file.",
            code="FM-BENCH-HISTORY",
        ) from error


Before = Mapping[str, tuple[float | None, float | None]]
"""By figure, its value before and after a change."""


def steps(entries: Sequence[Entry]) -> list[tuple[str, str, Entry, Before]]:
    """Return, by cell and bench after its first one, the figures before and after: what a change brought."""
    rows: list[tuple[str, str, Entry, Before]] = []
    names = dict.fromkeys(name for entry in entries for name in entry.cells)
    for name in names:
        having = [entry for entry in entries if name in entry.cells]
        for before, after in pairwise(having):
            both = {figure: (before.cells[name].get(figure), after.cells[name].get(figure)) for figure in SHOWN}
            rows.append((name, after.note, after, both))
    return rows
