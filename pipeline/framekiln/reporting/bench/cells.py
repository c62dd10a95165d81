"""Text of a bench's figures that the terminal and the page share."""

from collections.abc import Sequence

from framekiln.lab.clips.measure import ClipRow
from framekiln.lab.output.cells import CellResult
from framekiln.lab.output.results import BenchReport
from framekiln.lab.output.tables import TOO_FEW, latency_cells
from framekiln.lab.sav.measure import VideoRow
from framekiln.lab.sav.summary import ModelSummary
from framekiln.planning.sample import calls_for
from framekiln.reporting.formatting import MISSING, number

HEADS = (
    *("Median ms", "p95", "p99", "ms an item", "Items/s", "Speed-up", "Drift", "J an item", "GFLOP", "TFLOP/s"),
    *("Of peak", "Weights MB", "Peak MB"),
)
TIMES = (
    *("model", "cell", "calls", "mean ms", "std", "min", "max", "p50", "p90", "p95", "p99", "frames/s", "enqueue ms"),
    *("GPU ms", "to GPU ms", "back ms", "compile s", "set-up s"),
)
CLIP_HEADS = ("clip", "scenario", "pools", "batch", "fps", "mean ms", "p50", "p95", "p99")
VIDEO_HEADS = ("model", "objects", "runs", "failed", "fps", "ms a frame", "peak GB", "J", "F", "J&F")
RUN_HEADS = ("model", "video", "object", "run", "frames", "fps", "first ms", "median ms", "p95", "J", "F")
METHOD = (
    "Times are of a call unless a head says otherwise; ms an item is a call's time by its batch, which no single item "
    f"waits. A percentile needs five calls beyond it: p95 {calls_for(0.95)} calls, p99 {calls_for(0.99)}."
)
METHODS = {
    "Of peak": "The peak of arithmetic is that of a large matrix product here.",
    "Speed-up": "Speed-up is the median of turns with fp32 in one process, with its least and most.",
    "Drift": "Drift is the relative L2 distance of the outputs from fp32's.",
}
"""Sentences on figures that not every bench has, by their heads."""


def with_values(heads: Sequence[str], rows: Sequence[Sequence[str]], without: str = MISSING) -> list[int]:
    """Return the columns in which any row has a value: a CPU has no times of a GPU, one precision no speed-up.

    Args:
        heads: of all columns.
        rows: their texts.
        without: a further text that is no value, besides a dash.
    """
    return [place for place, _ in enumerate(heads) if {row[place] for row in rows} - {MISSING, without}]


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
    """Return the cells of a row under `HEADS`."""
    latency, memory = result.latency_ms, result.memory
    return [
        three(getattr(latency, "median", None)),
        *(TOO_FEW if (value := getattr(latency, name, None)) is None else three(value) for name in ("p95", "p99")),
        three(result.item_ms),
        three(result.items_per_s),
        MISSING if result.speedup is None else speed_up(result),
        drift(result),
        three(result.item_j),
        three(result.flops and result.flops / 1e9),
        three(result.tflops),
        MISSING if result.peak_share is None else f"{result.peak_share:.0%}",
        three(getattr(memory, "weights", 0) / 1e6),
        peak_memory(result),
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


def notes(report: BenchReport) -> dict[str, list[str]]:
    """Return the cells by their notes: a sweep has one note in many cells."""
    found: dict[str, list[str]] = {}
    for cell in report.cells:
        for note in cell.notes:
            found.setdefault(note, []).append(f"{cell.model}, {cell.cell.title}")
    return found


def clip_cells(row: ClipRow) -> list[str]:
    """Return a clip's row under `CLIP_HEADS`."""
    first = [row.clip, row.scenario, "on" if row.pools else "off"]
    latency = row.latency_ms
    if latency is None:
        return [*first, *[MISSING] * 6]
    times = [TOO_FEW if value is None else f"{value:.1f}" for value in (latency.p50, latency.p95, latency.p99)]
    return [*first, f"{row.batch:.1f}", f"{row.fps or 0:.1f}", f"{latency.mean:.1f}", *times]


def model_cells(summary: ModelSummary) -> list[str]:
    """Return a model's row under `VIDEO_HEADS`; J and F of random weights mean nothing, and say so."""
    scores = (summary.j, summary.f, summary.j_and_f)
    spread = "" if summary.fps_std is None else f" ± {summary.fps_std:.2f}"
    return [
        summary.model,
        *(str(count) for count in (summary.objects, summary.runs, summary.failed)),
        _number(summary.fps, 2) + spread,
        _number(summary.median_ms, 1 if (summary.median_ms or 0.0) < 1000 else 0),
        _number(summary.peak_gb, 2),
        *(_score(score, summary.weights) for score in scores),
    ]


def run_cells(row: VideoRow) -> list[str]:
    """Return a run's row under `RUN_HEADS`."""
    p95 = getattr(row.latency_ms, "p95", None)
    return [
        *(row.model, row.video, row.object, str(row.run), str(row.frames)),
        _number(row.fps, 2),
        _number(row.first_ms, 1),
        _number(getattr(row.latency_ms, "median", None), 1),
        TOO_FEW if p95 is None and row.latency_ms is not None else _number(p95, 1),
        _score(row.j, row.weights),
        _score(row.f, row.weights),
    ]


def _score(value: float | None, weights: str) -> str:
    return "dummy" if weights.startswith("dummy") else _number(value, 3)


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:,.{digits}f}"
