"""The files of a bench: figures as JSON, a table of cells, clips and videos, and a table of models' modules."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from framekiln.contract.errors import ConfigError
from framekiln.contract.user_files import writing
from framekiln.lab.output.cells import CellResult
from framekiln.lab.output.film_rows import ClipRow, VideoRow
from framekiln.planning.sample import PERCENTILES

FORMAT = 1
"""Increased when a key changes its meaning or is removed."""

STATS = "profile_stats.json"
SUMMARY, LAYERS = "profile_summary.csv", "layers.csv"
TOO_FEW = "too few"
"""A percentile with too few calls."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """One model of a bench."""

    name: str
    weights: str  # real from its file, or seeded random
    params: int = 0
    weights_bytes: int | None = None  # bytes in the first measured cell
    flops_per_item: float | None = None  # there; another size or number of frames has other FLOPs
    parts: Mapping[str, int] = field(default_factory=dict)  # parameters by direct child
    batch: int = 1  # its own batch, measured if no other is requested

    def with_figures(self, first: CellResult | None) -> Self:
        """Return these facts, completed by the first measured cell."""
        if first is None:
            return self
        flops = first.flops / first.items if first.flops and first.items else None
        return replace(self, weights_bytes=first.weights_bytes, flops_per_item=flops)


@dataclass(frozen=True, kw_only=True)
class BenchFinding:
    """A finding: a rule that applies to the figures."""

    rule: str
    where: str  # the model and the cell
    text: str  # one sentence with the numbers
    fix: str
    numbers: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, rule: str, where: str, text: str, fix: str, **numbers: float) -> Self:
        """Return the finding of a rule with its numbers by name."""
        return cls(rule=rule, where=where, text=text, fix=fix, numbers=numbers)


@dataclass(frozen=True, kw_only=True)
class OtherFigures:
    """Figures that belong to no cell or video."""

    clips: tuple[ClipRow, ...] = ()
    nsight: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by model and option


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """All figures of one bench."""

    made: str  # ISO 8601, UTC
    argv: tuple[str, ...]
    environment: Mapping[str, Any]
    models: tuple[ModelInfo, ...] = ()
    cells: tuple[CellResult, ...] = ()
    findings: tuple[BenchFinding, ...] = ()
    video: tuple[VideoRow, ...] = ()  # rows of video segmentation: by video, object, model and run
    targets: tuple[Mapping[str, Any], ...] = ()
    extra: OtherFigures = OtherFigures()
    format: int = FORMAT


def new_report(environment: Mapping[str, Any], **figures: Any) -> BenchReport:
    """Return a report of this command, made now."""
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return BenchReport(made=made, argv=tuple(sys.argv[1:]), environment=environment, **figures)


def write_report(report: BenchReport, path: Path) -> Path:
    """Write a report as JSON, with null for non-finite numbers. Raises OutputError: the file cannot be written."""
    with writing(path):
        path.write_bytes(TypeAdapter(BenchReport).dump_json(report, indent=1) + b"\n")
    return path


def read_report(path: Path) -> BenchReport:
    """Read a report, or that of a folder of `--out`. Raises ConfigError: it is missing, or has another form."""
    file = path
    try:
        file = path / STATS if path.is_dir() else path
        data = json.loads(file.read_text(encoding="utf-8"))
        report: BenchReport = TypeAdapter(BenchReport).validate_python(data)
    except (OSError, RecursionError, ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{str(file)!r} is no report of framekiln bench ({reason}); give its profile_stats.json.",
            code="FK-BENCH-REPORT",
        ) from error
    if report.format != FORMAT:
        raise ConfigError(
            f"{str(file)!r} has format {report.format}, this version reads {FORMAT}; measure again.",
            code="FK-BENCH-REPORT",
        )
    return report


def require_any(rows: Sequence[Any]) -> None:
    """Check that some cell, video or clip was measured: a bench without figures is no success.

    Raises ConfigError: no row has figures.
    """
    if not any(row.outcome == "ok" for row in rows):
        reason = f" ({rows[0].outcome}: {rows[0].why})" if rows else ""
        raise ConfigError(
            f"Nothing was measured{reason}; correct the model, or choose other cells.", code="FK-BENCH-NOTHING-MEASURED"
        )


def write_tables(rows: Sequence[Any], folder: Path) -> list[Path]:
    """Write cells, runs of videos or clips into a folder, a row each, and layers of cells, a row each.

    Returns the paths of the tables with a row. Raises OutputError: a file cannot be written.
    """
    found = [(row, layer) for row in rows for layer in getattr(row, "layers", ())]
    layers = [{"model": row.model, "cell": row.cell, "layer": layer} for row, layer in found]
    tables = {SUMMARY: list(map(_flatten, rows)), LAYERS: list(map(_flatten, layers))}
    for name, lines in tables.items():
        if lines:
            with writing(folder / name) as path, path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(dict.fromkeys(name for line in lines for name in line)))
                writer.writeheader()
                writer.writerows(lines)
    return [folder / name for name, lines in tables.items() if lines]


def _flatten(row: Any, start: str = "") -> dict[str, Any]:
    """Return the plain values of a row by name; values of its parts have the part's name in front: latency_p50."""
    cells: dict[str, Any] = {}
    for name, value in (row if isinstance(row, Mapping) else vars(row)).items():
        if is_dataclass(value):
            cells |= _flatten(value, "" if name in ("cell", "layer") else f"{name.removesuffix('_ms')}_")
        elif name == "notes":
            cells[name] = "; ".join(value)
        elif not isinstance(value, Mapping | tuple):
            cells[f"{start}{name}"] = TOO_FEW if value is None and name in PERCENTILES else value
    return cells
