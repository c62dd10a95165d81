"""Text of a bench's figures that the terminal and the page share."""

from __future__ import annotations

from pipeline.bench.measure.statistics import calls_for
from pipeline.bench.output.cells import CellResult
from pipeline.bench.output.results import BenchReport
from pipeline.bench.output.tables import latency_cells
from pipeline.reporting.formatting import MISSING, number

HEADS = (
    *("Model", "Cell", "Median ms", "p95", "p99", "ms an item", "Items/s", "J an item", "GFLOP", "TFLOP/s", "Of peak"),
    *("Weights MB", "Peak MB", "Speed-up", "Drift"),
)
TIMES = (
    *("model", "cell", "calls", "mean ms", "std", "min", "max", "p50", "p90", "p95", "p99", "frames/s", "enqueue ms"),
    *("GPU ms", "to GPU ms", "back ms", "compile s", "set-up s"),
)
RIGHT = tuple(range(2, len(HEADS)))
METHOD = (
    "Times are of a call unless a head says otherwise; ms an item is a call's time by its batch, which no single item "
    f"waits. A percentile needs five calls beyond it: p95 {calls_for(0.95)} calls, p99 {calls_for(0.99)}. The peak of "
    "arithmetic is that of a large matrix product here. Drift is the relative L2 distance of the outputs from fp32's. "
    "Speed-up is the median of turns with fp32 in one process, with its least and most."
)


def facts(report: BenchReport) -> dict[str, str]:
    """Return what figures depend on beside the model, by name."""
    about = report.environment
    known = {
        "Device": about.get("gpu") or about.get("processor"),
        "Driver": about.get("driver"),
        "CUDA, cuDNN": ", ".join(str(about[name]) for name in ("cuda", "cudnn") if about.get(name)),
        "torch": about.get("torch"),
        "Threads": f"{about.get('threads')} of {about.get('cores')} cores",
        "Load before": f"{about.get('load') or 0:.1f}",
        "Measured": report.made,
        "Command": " ".join(report.argv),
    }
    return {name: str(value) for name, value in known.items() if value}


def cell_row(result: CellResult) -> list[str]:
    """Return the cells of a row under `HEADS`, after the model and the cell."""
    latency, memory = result.latency_ms, result.memory
    return [
        three(getattr(latency, "median", None)),
        *("too few" if (value := getattr(latency, name, None)) is None else three(value) for name in ("p95", "p99")),
        three(result.item_ms),
        three(result.items_per_s),
        three(result.item_j),
        three(result.flops and result.flops / 1e9),
        three(result.tflops),
        MISSING if result.peak_share is None else f"{result.peak_share:.0%}",
        three(getattr(memory, "weights", 0) / 1e6),
        peak_memory(result),
        MISSING if result.speedup is None else speed_up(result),
        drift(result),
    ]


def time_row(result: CellResult) -> list[str]:
    """Return the cells of a row under `TIMES`."""
    latency = latency_cells(result)
    names = ("mean", "std", "min", "max", "p50", "p90", "p95", "p99")
    medians = (getattr(times, "median", None) for times in (result.enqueue_ms, result.gpu_ms))
    rest = (result.h2d_ms, result.d2h_ms, result.compile_s, result.set_up_s)
    known = (value if isinstance(value, str) else three(value) for value in (latency[name] for name in names))
    figures = (three(value) for value in (result.frames_per_s, *medians, *rest))
    return [result.model, result.cell.title, str(latency["count"]), *known, *figures]


def peak_memory(result: CellResult) -> str:
    """Return the peak in MB, with its share of the device's memory where that is known."""
    memory = result.memory
    if memory is None or memory.peak is None:
        return MISSING
    share = "" if memory.device_share is None else f" ({memory.device_share:.0%})"
    return three(memory.peak / 1e6) + share


def speed_up(result: CellResult) -> str:
    """Return the factor with its band."""
    found = result.speedup
    return "" if found is None else f"{found.factor:.2f} ({found.low:.2f} to {found.high:.2f})"


def drift(result: CellResult) -> str:
    """Return the difference of the outputs."""
    if result.drift is None:
        return MISSING
    if result.drift.nonfinite:
        return f"{result.drift.nonfinite:,} not finite"
    return three(result.drift.rel_l2)


def three(value: float | None) -> str:
    """Return a number with three digits; a dash for none."""
    return MISSING if value is None else number(float(f"{value:.3g}"))
