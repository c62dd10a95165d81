"""The history of a model's benches: `runs.jsonl`, a line a bench, with what was changed and what it brought."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framekiln.contract.errors import ConfigError
from framekiln.lab.output.results import BenchReport, writing
from framekiln.lab.samples import samples

SHOWN = ("p50", "rate", "peak_gb")
"""Figures of a line; the rest is in the bench's own files."""


@dataclass(frozen=True, kw_only=True)
class HistoryLine:
    """One line: a bench with its note and the figures of its cells."""

    made: str
    note: str
    device: str
    torch: str
    cells: Mapping[str, Mapping[str, float | None]]  # by sample, figures by name
    work: Mapping[str, str] = field(default_factory=dict)  # by sample, what is computed, in whatever way


def entry_of(report: BenchReport, note: str) -> HistoryLine:
    """Return the line of a bench."""
    measured = [sample for sample in samples(report) if sample.outcome == "ok"]
    cells = {sample.name: {figure: sample.figures.get(figure) for figure in SHOWN} for sample in measured}
    work = {sample.name: sample.work for sample in measured}
    about = report.environment
    device = str(about.get("gpu") or about.get("processor") or about.get("device") or "")
    return HistoryLine(
        made=report.made, note=note, device=device, torch=str(about.get("torch") or ""), cells=cells, work=work
    )


def append(path: Path, entry: HistoryLine) -> list[HistoryLine]:
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


def read(path: Path) -> list[HistoryLine]:
    """Read a history.

    Raises:
        ConfigError: the file is no history.
    """
    try:
        lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [HistoryLine(**line) for line in lines]
    except (OSError, RecursionError, ValueError, TypeError) as error:
        raise ConfigError(
            f"--history {str(path)!r} is no history of framekiln bench ({error}); give another file.",
            code="FK-BENCH-HISTORY",
        ) from error


@dataclass(frozen=True, kw_only=True)
class HistoryStep:
    """The figures of one cell before and after a bench's change."""

    bench: HistoryLine
    cell: str  # its name; where another cell is compared, both names
    figures: Mapping[str, tuple[float | None, float | None]]  # by name, before and after


def steps(entries: Sequence[HistoryLine]) -> list[HistoryStep]:
    """Return what each bench after the first brought, cell by cell.

    A cell is compared with itself in the latest bench before that has it. Without one it is compared with the fastest
    cell of the latest bench before that computes the same in another way, for instance in another precision.
    """
    found = []
    for number, bench in enumerate(entries):
        earlier = entries[:number][::-1]
        for name, after in bench.cells.items():
            if (before := _before(name, bench.work.get(name), earlier)) is not None:
                other, values = before
                figures = {figure: (values.get(figure), after.get(figure)) for figure in SHOWN}
                found.append(
                    HistoryStep(bench=bench, cell=name if other == name else f"{other} → {name}", figures=figures)
                )
    return found


def _before(
    name: str, work: str | None, earlier: Sequence[HistoryLine]
) -> tuple[str, Mapping[str, float | None]] | None:
    """Return the name and figures of the cell that a cell is compared with; None without one."""
    for bench in earlier:
        if name in bench.cells:
            return name, bench.cells[name]
    for bench in earlier:
        likes = [other for other in bench.cells if work is not None and bench.work.get(other) == work]
        if likes:
            fastest = min(likes, key=lambda other: bench.cells[other].get("p50") or math.inf)
            return fastest, bench.cells[fastest]
    return None
