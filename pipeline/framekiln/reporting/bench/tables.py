"""The tables of a bench, for its page and the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from framekiln.lab.nsight.reports import KernelFigures, SystemsFigures
from framekiln.lab.output.cells import CellResult, Layer
from framekiln.lab.output.film_rows import ClipRow, VideoRow
from framekiln.lab.output.results import TOO_FEW, BenchReport
from framekiln.lab.sav.measure import summarize
from framekiln.planning.sample import PERCENTILE_RULE
from framekiln.reporting.kit.texts import Column, TextTable, figure, numbers, plain_table, share, words

_METHODS = {
    "Of peak": "The peak of arithmetic is that of a large matrix product here.",
    "Speed-up": "Speed-up is the median of turns with fp32 in one process, with its least and most.",
    "Drift": "Drift is the relative L2 distance of the outputs from fp32's.",
}
"""Sentences on optional figures, by their heads."""


def _make_percentiles(*names: str, **more: Any) -> list[Column]:
    def find(name: str, row: Any) -> float | str | None:
        return "" if row.latency_ms is None else getattr(row.latency_ms, name)

    return [Column(name, partial(find, name), empty=TOO_FEW, **more) for name in names]


def _make_scores(**paths: str) -> list[Column]:
    def find(name: str, row: Any) -> float | str | None:
        facts = row if isinstance(row, Mapping) else vars(row)
        return "dummy" if facts["weights"].startswith("dummy") else facts[name]  # of random weights it means nothing

    return [Column(title.replace("_and_", "&"), partial(find, name)) for title, name in paths.items()]


def _to_gflop(item: CellResult | Layer) -> float | None:
    return None if item.flops is None else item.flops / 1e9


def peak_memory(result: CellResult) -> str | None:
    """Return the peak in MB, with its share of the device's memory if known."""
    memory = result.memory
    if memory is None or memory.peak is None:
        return None
    part = "" if memory.device_share is None else f" ({share(memory.device_share)})"
    return figure(memory.peak / 1e6) + part


def speed_up(result: CellResult) -> str | None:
    """Return the factor with its band."""
    found = result.speedup
    return None if found is None else f"{found.factor:.2f} ({found.low:.2f} to {found.high:.2f})"


def drift(result: CellResult) -> str | None:
    """Return the difference of the outputs."""
    if result.drift is None:
        return None
    return f"{result.drift.nonfinite:,} not finite" if result.drift.nonfinite else figure(result.drift.rel_l2)


_CELLS = (
    words("Model", "model"),
    words("Cell", "cell.title", "title"),
    Column("Median ms", "p50", optional=True),
    *_make_percentiles("p95", "p99", optional=True),
    *numbers({"ms an item": "item_ms", "Items/s": "items_per_s"}, optional=True),
    Column("Speed-up", speed_up, optional=True),
    Column("Drift", drift, optional=True),
    Column("J an item", "item_j", optional=True),
    Column("GFLOP", _to_gflop, optional=True),
    Column("TFLOP/s", "tflops", optional=True),
    Column("Of peak", "peak_share", show=share, optional=True),
    Column("Weights MB", lambda cell: cell.memory and cell.memory.weights / 1e6, optional=True),
    Column("Peak MB", peak_memory, optional=True),
    words("Outcome", lambda cell: "" if cell.outcome == "ok" else f"{cell.outcome}: {cell.why}", optional=True),
)
_TIMES = (
    words("model", "model", "words"),
    words("cell", "cell.title", "words"),
    *numbers({"calls": "latency_ms.count", "mean ms": "latency_ms.mean", "std": "latency_ms.std"}),
    *_make_percentiles("min", "max", "p50", "p90", "p95", "p99"),
    *numbers({"frames/s": "frames_per_s", "enqueue ms": "enqueue_ms.median", "GPU ms": "gpu_ms.median"}, optional=True),
    *numbers({"to GPU ms": "h2d_ms", "back ms": "d2h_ms", "compile s": "compile_s"}, optional=True),
    Column("set-up s", "set_up_s", optional=True),
)
_LEAKS = (
    words("model", "model"),
    words("cell", "cell.title"),
    words("result", lambda cell: "tensors leak" if cell.leak.leaks else "no leak of tensors"),
    Column("bytes a call", "leak.slope", show=lambda slope: f"{slope:,.0f}"),
    Column("calls", "leak.calls"),
)
_VIDEOS = (
    words("model", "model"),
    *numbers({"objects": "objects", "runs": "runs", "failed": "failed"}),
    Column("fps", lambda one: " ± ".join(map(figure, filter(None, (one["fps"], one["fps_std"])))) or None),
    *numbers({"ms a frame": "median_ms", "peak GB": "peak_gb"}),
    *_make_scores(J="j", F="f", J_and_F="j_and_f"),
)
_RUNS = (
    *(words(name, name) for name in ("model", "video", "object")),
    *numbers({"run": "run", "frames": "frames", "fps": "fps", "first ms": "first_ms"}),
    Column("median ms", "latency_ms.median"),
    *_make_percentiles("p95"),
    *_make_scores(J="j", F="f"),
    words("reason", "why", optional=True),
)
_CLIPS = (
    *(words(name, name) for name in ("model", "clip", "scenario")),
    words("pools", lambda row: "on" if row.pools else "off"),
    *numbers({"batch": "batch", "fps": "fps", "mean ms": "latency_ms.mean"}),
    *_make_percentiles("p50", "p95", "p99"),
    words("reason", "why", optional=True),
)
_SPANS = (
    words("model", "0"),
    *numbers({"span ms": "1.span_ms", "busy ms": "1.busy_ms"}),
    Column("idle", "1.idle_share", show=share),
    *numbers({"pauses": "1.gaps", "longest ms": "1.longest_gap_ms", "kernels": "1.kernels"}),
    *numbers({"small": "1.small_kernels", "kernel ms": "1.kernel_ms", "launch ms": "1.launch_ms"}),
    Column("copy ms", lambda row: sum(copies.ms for copies in row[1].copies.values())),
)
_KERNELS = (
    words("kernel", lambda one: one.name[:80]),
    *numbers({"us": "us", "arithmetic %": "compute_percent", "tensor cores %": "tensor_percent"}),
    *numbers({"memory %": "memory_percent", "L1 hits %": "l1_hit_percent", "L2 hits %": "l2_hit_percent"}),
    *numbers({"bytes used %": "sector_percent", "warps %": "occupancy_percent"}),
)
LAYERS = (
    words("Path", lambda layer: "\u2003" * layer.depth + layer.path, "path"),
    words("Class", "kind"),
    *numbers({"Uses": "uses", "Mean ms": "mean_ms", "Std": "std_ms", "Own ms": "own_ms"}),
    Column("GFLOP", _to_gflop),
    Column("Share", "share", show=lambda part: f"{100 * part:.1f} %"),
    words("", lambda layer: str(min(layer.share, 1.0)), "meter"),
)
HISTORY = (
    words("Bench", "bench.made"),
    words("Changed", "bench.note"),
    words("Cell", "cell"),
    *numbers({"ms before": "figures.p50.0", "ms after": "figures.p50.1"}),
    *numbers({"Items/s before": "figures.rate.0", "Items/s after": "figures.rate.1"}),
    *numbers({"Peak GB before": "figures.peak_gb.0", "Peak GB after": "figures.peak_gb.1"}),
)


def cells_table(report: BenchReport) -> TextTable:
    """Return all cells, without columns that have no value."""
    table = TextTable(title="All cells", columns=_CELLS, items=report.cells).shown
    note = (
        "Times are of a call unless a column says otherwise. ms an item is the median call divided by its batch; one "
        f"item waits for the whole call. Items/s is of all calls, slow ones too. {PERCENTILE_RULE}"
    )
    return replace(table, note=" ".join([note, *(text for head, text in _METHODS.items() if head in table.heads)]))


def videos_table(rows: Sequence[VideoRow]) -> TextTable:
    """Return the means of each model over objects and runs."""
    note = (
        "Frames a second and ms are medians over runs, with the standard deviation of runs. J and F are means over "
        f"objects. Prompts: {', '.join(dict.fromkeys(row.prompt for row in rows))}. {_name_weights(rows)}"
    )
    return TextTable(id="videos", title="Videos", columns=_VIDEOS, items=summarize(rows), note=note)


def clips_table(rows: Sequence[ClipRow]) -> TextTable:
    """Return each model on each clip."""
    note = "Times are a frame's, from its arrival until it is encoded. A p95 needs 100 frames, a p99 500. "
    note += _name_weights(rows)
    return TextTable(id="clips", title="Clips, end to end", columns=_CLIPS, items=rows, note=note).shown


def sections(report: BenchReport) -> list[TextTable]:
    """Return the tables of other measurements: times, leaks, videos, clips, targets and Nsight's tools."""
    times = (
        "A call's time ends when its results are on the device, enqueue when the call returns. Enqueue, GPU and copies "
        "are medians; GPU and copies exist on a GPU only. Compilation is the first call less a later one."
    )
    leaks = "Growth of the memory of tensors a call, by least squares over the second half of the calls."
    measured = [cell for cell in report.cells if cell.outcome == "ok"]
    tested = [cell for cell in report.cells if cell.leak is not None]
    heads = list(report.targets[0]) if report.targets else []
    aims = [[target[head] for head in heads] for target in report.targets]
    found = [
        TextTable(id="times", title="Times", columns=_TIMES, items=measured, note=times),
        TextTable(id="leaks", title="Memory over repeated calls", columns=_LEAKS, items=tested, note=leaks),
        videos_table(report.video),
        TextTable(id="runs", title="Runs of each object", columns=_RUNS, items=report.video),
        clips_table(report.extra.clips),
        plain_table("Targets", heads, aims, texts=len(heads), id="targets"),
    ]
    nsight = report.extra.nsight
    recorded = {model: of["--nsys"] for model, of in nsight.items() if of.get("--nsys")}
    spans = list(TypeAdapter(dict[str, SystemsFigures]).validate_python(recorded).items())
    note = "From the first operation of the GPU to the last. Small kernels take less than 10 us."
    found.append(TextTable(id="nsys", title="Nsight Systems", columns=_SPANS, items=spans, note=note))
    note = "Launches after the warm-up in their order. Percent of the GPU's peaks; of warps, those active."
    for place, (model, of) in enumerate(nsight.items()):
        kernels = TypeAdapter(list[KernelFigures]).validate_python(of.get("--ncu") or [])
        title = f"Nsight Compute: {model}"
        found.append(TextTable(id=f"ncu-{place}", title=title, columns=_KERNELS, items=kernels, note=note))
    return [table.shown for table in found if table.items]


def _name_weights(rows: Sequence[VideoRow | ClipRow]) -> str:
    known = dict.fromkeys((row.model, row.weights) for row in rows)
    return " ".join(f"Weights of {model}: {weights}." for model, weights in known)
