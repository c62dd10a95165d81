"""`profile_summary.csv`, a row a cell, and `layers.csv`, a row a module of a cell."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from framekiln.lab.output.cells import CellResult, Layer
from framekiln.lab.output.files import writing

SUMMARY, LAYERS = "profile_summary.csv", "layers.csv"

_AXES = ("batch", "size", "frames", "precision", "compile", "channels_last", "backend")
_LATENCY = ("count", "mean", "median", "std", "min", "max", "p50", "p90", "p95", "p99")
_PLAIN = (
    *("item_ms", "items_per_s", "frames_per_s", "item_j", "h2d_ms", "d2h_ms", "set_up_s", "compile_s", "params"),
    *("weights_bytes", "flops", "tflops", "peak_share", "traffic", "gb_s", "bandwidth_share"),
)
_MEMORY = ("activations_peak", "peak", "device_share", "reserved", "inputs", "outputs")
_DRIFT = ("rel_l2", "cosine", "max", "nonfinite")
TOO_FEW = "too few"
"""A percentile for which there were not enough calls."""


def write_tables(cells: Sequence[CellResult], folder: Path) -> list[Path]:
    """Write both tables into a folder, and return the paths of those with a row.

    Raises:
        OutputError: a file cannot be written.
    """
    rows = [_layer_row(cell, layer) for cell in cells for layer in cell.layers]
    paths = [_write(folder / SUMMARY, [summary_row(cell) for cell in cells])] if cells else []
    return [*paths, _write(folder / LAYERS, rows)] if rows else paths


def summary_row(result: CellResult) -> dict[str, Any]:
    """Return a cell's row: times in ms of a call, bytes, shares; empty where a figure was not measured."""
    row: dict[str, Any] = {"model": result.model, **_take(result.cell, _AXES), "outcome": result.outcome}
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


def _layer_row(result: CellResult, layer: Layer) -> dict[str, Any]:
    names = ("path", "kind", "depth", "uses", "mean_ms", "std_ms", "own_ms", "share", "flops")
    return {"model": result.model, **_take(result.cell, _AXES), **_take(layer, names)}


def _take(source: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    with writing(path), path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
