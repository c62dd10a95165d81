"""The bench's figures in the terminal, cell by cell."""

from __future__ import annotations

from rich.console import Console

from pipeline.bench.output.cells import CellResult
from pipeline.bench.output.results import ModelInfo
from pipeline.reporting.terminal.console import print_line


def print_model(console: Console, info: ModelInfo) -> None:
    """Print a model's name, size and weights."""
    parts = ", ".join(f"{name} {count / 1e6:.1f} M" for name, count in info.parts.items())
    print_line(console, f"\n{info.name}: {info.params / 1e6:,.1f} M parameters ({parts}), weights {info.weights}")


def print_cell(console: Console, result: CellResult) -> None:
    """Print a cell's main figures, or why there are none."""
    title = f"  {result.cell.title}"
    latency = result.latency_ms
    if latency is None:
        print_line(console, f"{title}: {result.outcome}, {result.why}")
        return
    parts = [f"{latency.median:,.2f} ms a call", f"{result.items_per_s or 0:,.2f} items/s"]
    parts += [f"{name} {value:,.2f}" for name, value in (("p95", latency.p95), ("p99", latency.p99)) if value]
    print_line(console, f"{title}: {', '.join(parts)} ({latency.count} calls)")
