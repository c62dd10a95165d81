"""The files of a bench: `profile_stats.json`, `profile_summary.csv`, a row a cell, and `layers.csv`, a row a module."""

import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from framekiln.contract.errors import ConfigError, OutputError
from framekiln.lab.output.cells import CellResult, Layer

FORMAT = 1
"""Raised when a key changes its meaning or goes."""

STATS = "profile_stats.json"
SUMMARY, LAYERS = "profile_summary.csv", "layers.csv"


_LATENCY = ("count", "mean", "median", "std", "min", "max", "p50", "p90", "p95", "p99")
_PLAIN = (
    *("item_ms", "items_per_s", "frames_per_s", "item_j", "h2d_ms", "d2h_ms", "set_up_s", "compile_s", "params"),
    *("weights_bytes", "flops", "tflops", "peak_share", "traffic", "gb_s", "bandwidth_share"),
)
_MEMORY = ("activations_peak", "peak", "device_share", "reserved", "inputs", "outputs")
_DRIFT = ("rel_l2", "cosine", "max", "nonfinite")
TOO_FEW = "too few"
"""A percentile for which there were not enough calls."""


@contextmanager
def writing(path: Path, *, code: str = "FK-BENCH-NOT-WRITABLE", fix: str = "choose another path") -> Iterator[Path]:
    """Make the folder of a file that the block writes. Raises OutputError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"{str(path)!r} cannot be written ({reason}); {fix}.", code=code) from error


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """One model of a bench."""

    name: str
    weights: str  # real with its file, or seeded random
    params: int = 0
    weights_bytes: int | None = None  # in the first cell that was measured
    flops_per_item: float | None = None  # in it; another size or number of frames has others
    parts: Mapping[str, int] = field(default_factory=dict)  # parameters by direct child
    batch: int = 1  # its own, which is measured where no other is asked for


@dataclass(frozen=True, kw_only=True)
class BenchFinding:
    """A rule that applies to the figures."""

    rule: str
    where: str  # the model and the cell
    text: str  # one sentence with the numbers
    fix: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """All figures of one bench."""

    made: str  # ISO 8601, UTC
    argv: tuple[str, ...]
    environment: Mapping[str, Any]
    models: tuple[ModelInfo, ...] = ()
    cells: tuple[CellResult, ...] = ()
    findings: tuple[BenchFinding, ...] = ()
    video: tuple[Mapping[str, Any], ...] = ()  # of video segmentation: by video, object, model and run
    targets: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # `clips`, a row each; `nsight`, figures by model and option
    format: int = FORMAT


def new_report(environment: Mapping[str, Any], **figures: Any) -> BenchReport:
    """Return a report of this command, made now."""
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return BenchReport(made=made, argv=tuple(sys.argv[1:]), environment=environment, **figures)


def with_figures(info: ModelInfo, cells: Sequence[CellResult]) -> ModelInfo:
    """Return a model's facts with what its first measured cell told of it."""
    first = next((cell for cell in cells if cell.outcome == "ok"), None)
    if first is None:
        return info
    flops = first.flops / first.items if first.flops and first.items else None
    return replace(info, weights_bytes=first.weights_bytes, flops_per_item=flops)


def write_report(report: BenchReport, path: Path) -> Path:
    """Write a report as JSON, null for numbers that are not finite. Raises OutputError: the file cannot be written."""
    text = json.dumps(_finite(asdict(report)), indent=1, ensure_ascii=False)
    with writing(path):
        path.write_text(text + "\n", encoding="utf-8")
    return path


def read_report(path: Path) -> BenchReport:
    """Read a report, or that of a folder of `--out`. Raises ConfigError if there is none, or it has another form."""
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
    """Check that a cell, or a row of a video or a clip, was measured: a bench without figures is no success.

    Raises ConfigError: all rows are without figures.
    """
    if not any(row.outcome == "ok" for row in rows):
        reason = f" ({rows[0].outcome}: {rows[0].why})" if rows else ""
        raise ConfigError(
            f"Nothing was measured{reason}; mend the model, or choose other cells.", code="FK-BENCH-NOTHING-MEASURED"
        )


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def write_tables(cells: Sequence[CellResult], folder: Path) -> list[Path]:
    """Write both tables into a folder, and return the paths of those with a row.

    Raises OutputError: a file cannot be written.
    """
    names = [item.name for item in fields(Layer)]
    rows = [{"model": cell.model, **vars(cell.cell), **_take(layer, names)} for cell in cells for layer in cell.layers]
    paths = [write_table(folder / SUMMARY, [summary_row(cell) for cell in cells])] if cells else []
    return [*paths, write_table(folder / LAYERS, rows)] if rows else paths


def summary_row(result: CellResult) -> dict[str, Any]:
    """Return a cell's row: times in ms of a call, bytes, shares; empty where a figure was not measured."""
    row: dict[str, Any] = {"model": result.model, **vars(result.cell), "outcome": result.outcome}
    row |= {"why": result.why, "notes": "; ".join(result.notes)}
    row |= {f"latency_{name}": value for name, value in latency_cells(result).items()}
    row["enqueue_median"] = getattr(result.enqueue_ms, "median", None)
    row["gpu_median"] = getattr(result.gpu_ms, "median", None)
    row |= _take(result, _PLAIN)
    row |= {f"memory_{name}": getattr(result.memory, name, None) for name in _MEMORY}
    row |= {f"drift_{name}": getattr(result.drift, name, None) for name in _DRIFT}
    row |= {f"speedup_{name}": getattr(result.speedup, name, None) for name in ("factor", "low", "high")}
    leak = result.leak
    return row | {"leak_bytes_per_call": leak and leak.slope, "leaks": leak and leak.leaks}


def latency_cells(result: CellResult) -> dict[str, Any]:
    """Return the statistics of the latency; a percentile with too few calls says so."""
    latency = result.latency_ms
    if latency is None:
        return dict.fromkeys(_LATENCY)
    cells = _take(latency, _LATENCY)
    return {name: TOO_FEW if value is None and name.startswith("p") else value for name, value in cells.items()}


def _take(source: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows of the same columns, at least one, as CSV."""
    with writing(path), path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
