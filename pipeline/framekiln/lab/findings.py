"""Rules over the figures; each finding has its numbers and a fix.

Limits are absolute if profiling guides state them so (8 GB, 0.5 ms, 80 %). Shares of the device or the model complement
them, since absolute ones say little for a small model or a large GPU. Each limit is a first setting.
"""

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from framekiln.lab.measure.layers import WHOLE, slowest
from framekiln.lab.output.cells import CellResult, Layer
from framekiln.lab.output.results import BenchFinding
from framekiln.lab.sweep.figures import MODEL_SHARE
from framekiln.profiling.advice import OTHERS

DOMINANT = 0.5  # share of the model's time in one layer of the first level
UNEVEN = 0.25  # spread of equal blocks, as a share of their mean
EMBEDDING = 0.10  # share of the patch embedding
LARGE_GB = 8.0  # GB of the smallest common workstation GPU, as in guides
FULL = 0.8  # share of the device's memory
LOW_USE = 0.8  # share of a call in which the GPU works
SLIGHT, GOOD = 1.1, 1.5  # speed-ups: below the first it counts as none, from the second on as good
SMALL_MS = 0.5  # layers below it, as guides state it
SMALL_SHARE = 0.3  # share of the model's time in such layers
NEAR_MODEL = 0.9  # share of its model's rate that a stage should reach
LAUNCH = 1.0  # enqueueing as a multiple of the GPU's time; above it, launches are the limit
SPREAD = 0.25  # deviation of calls, as a share of their mean
DRIFTS = 0.05  # relative L2 of outputs: a twentieth of their length
WEAK_PEAK = 0.1  # share of the measured arithmetic peak
BANDWIDTH = 0.5  # share of the measured bandwidth above which memory is the limit

LOAD = "load"
Rule = Callable[[CellResult], Iterator[BenchFinding]]


def findings(cells: Sequence[CellResult]) -> tuple[BenchFinding, ...]:
    """Return the findings of all rules in measured cells, in the order of cells and rules."""
    return tuple(finding for cell in cells if cell.outcome == "ok" for rule in RULES for finding in rule(cell))


def load(others: Mapping[str, Any]) -> list[BenchFinding]:
    """Return findings on other programs' load before the first call (`load_of_others`) that make times worthless."""
    cores, most = others["cores"], OTHERS * others["machine_cores"]
    found = []
    if cores >= most:
        text = f"other programs use {cores:.1f} of {others['machine_cores']} cores before the first call"
        found.append((text, f"wait until they use less than {most:.1f}", {"cores": cores}))
    processes, percent = others.get("gpu_processes_gb", {}), others.get("gpu_percent", 0)
    if processes or percent >= 100 * OTHERS:
        held = ", ".join(f"process {pid} holds {gb:.1f} GB" for pid, gb in processes.items())
        text = f"other programs use the GPU before the first call ({percent} % of the time{held and ', '}{held})"
        found.append((text, "end them", {"gpu_percent": float(percent), "gpu_gb": sum(processes.values())}))
    worthless = "times, and all figures computed from them, are worthless"
    return [
        BenchFinding.of(LOAD, "all figures", f"{text}: {worthless}", f"{fix}, and measure again", **numbers)
        for text, fix, numbers in found
    ]


def _check_layers(cell: CellResult) -> Iterator[BenchFinding]:
    """Check for a dominant layer, a slow patch embedding, and many small operations."""
    for layer in cell.layers:
        told = f"{layer.path} ({layer.kind}) takes {layer.share:.0%} of the model's time"
        if layer.depth == 1 and layer.share > DOMINANT:
            inside = [below for below in cell.layers if below.path.startswith(f"{layer.path}.")]
            named = ", ".join(below.path for below in slowest(inside, 3))
            fix = f"begin with {named}" if inside else f"list its parts with --layers --depth {layer.depth + 1}"
            fix += "; compile or cast it before anything else"
            yield _make_finding("layer dominates", cell, told, fix, share=layer.share, ms=layer.mean_ms)
        if layer.path.endswith(("patch_embed", "patch_embedding", "patch_embeddings")) and layer.share > EMBEDDING:
            fix = "try --channels-last both, or a 16-bit type: its convolution has no overlap and is bound by memory"
            yield _make_finding("patch embedding", cell, f"the patch embedding {told}", fix, share=layer.share)
    paths = [layer.path for layer in cell.layers]  # only the deepest layers: a part's time includes its layers
    deepest = [x for x in cell.layers if x.path != WHOLE and not any(p.startswith(f"{x.path}.") for p in paths)]
    small = [layer for layer in deepest if layer.mean_ms < SMALL_MS]
    share = sum(layer.share for layer in small)
    if share > SMALL_SHARE:
        text = f"{len(small)} layers under {SMALL_MS:g} ms take {share:.0%} of the model's time together"
        yield _make_finding("small operations", cell, text, "fuse them by --compile default", share=share)


def _check_memory(cell: CellResult) -> Iterator[BenchFinding]:
    peak, share = ((cell.memory.peak or 0) / 1e9, cell.memory.device_share or 0.0) if cell.memory else (0.0, 0.0)
    fix = "try smaller batches, a 16-bit type, or int8; the time line of memory shows the peak"
    if peak > LARGE_GB:
        text = f"the peak of memory is {peak:.1f} GB, over {LARGE_GB:g} GB"
        yield _make_finding("large memory", cell, text, fix, gigabytes=peak)
    if share > FULL:
        text = f"the peak of memory is {share:.0%} of the device's"
        yield _make_finding("memory nearly full", cell, text, fix, share=share)
    if cell.leak is not None and cell.leak.leaks:
        text = f"memory grows by {cell.leak.slope:,.0f} bytes a call over {cell.leak.calls} calls"
        fix = "look for lists or caches that keep tensors; without inference mode, for results that keep graphs"
        yield _make_finding("memory leak", cell, text, fix, bytes_per_call=cell.leak.slope)


def waits(where: str, syncs: Mapping[str, int]) -> list[BenchFinding]:
    """Return a finding if a call waits for the GPU, with the places of most waits."""
    if not syncs:
        return []
    total = sum(syncs.values())
    most = ", ".join(f"{at} {n}" for at, n in sorted(syncs.items(), key=lambda item: -item[1])[:3])
    text = f"a call reads results on the CPU {total} times, and waits for a GPU each time: {most}"
    fix = "keep values on the GPU: no .item(), nonzero or boolean masks between kernels"
    return [BenchFinding.of("waits", where, text, fix, waits=float(total))]


def _check_uneven(cell: CellResult) -> Iterator[BenchFinding]:
    """Compare equal blocks (class and FLOPs) in one list: `layers.0`, `layers.1`, ...

    Blocks with other FLOPs differ by design, as in a network that narrows.
    """
    groups: dict[tuple[str, str, float | None], list[Layer]] = {}
    for layer in cell.layers:
        if match := re.fullmatch(r"(.*?)\.?\d+", layer.path):
            groups.setdefault((match[1], layer.kind, layer.flops), []).append(layer)
    for (path, kind, _), blocks in groups.items():
        times = [block.mean_ms for block in blocks]
        if len(times) > 2 and statistics.stdev(times) > UNEVEN * statistics.fmean(times):
            slow = max(blocks, key=lambda block: block.mean_ms)
            share = statistics.stdev(times) / statistics.fmean(times)
            text = f"{len(times)} blocks {kind} in {path or 'the model'} differ by {share:.0%}, {slow.path} is slowest"
            fix = "their FLOPs are equal: look for copies and other memory formats, or measure again on an idle machine"
            yield _make_finding("blocks differ", cell, text, fix, deviation=share, slowest_ms=slow.mean_ms)


def _check_speed_up(cell: CellResult) -> Iterator[BenchFinding]:
    if cell.speedup is None:
        return
    factor = cell.speedup.factor
    band = "slower" if factor < 1 else "no gain" if factor < SLIGHT else "slight" if factor < GOOD else "good"
    if cell.speedup.low < 1 < cell.speedup.high:
        band = "unclear"
    backend = "" if cell.cell.backend == "torch" else f"{cell.cell.backend} in "
    text = f"{backend}{cell.cell.precision} is {factor:.2f} times as fast as eager fp32 ({band})"
    text += f", {cell.speedup.low:.2f} to {cell.speedup.high:.2f} over {cell.speedup.turns} turns"
    fixes = {
        "good": "use it, if the drift of the outputs is small enough",
        "unclear": "measure again on an idle machine: the turns disagree on which is faster",
        "slight": "try a larger batch: small ones are bound by launches or by memory",
    }
    keep = "fp32" if not backend else "eager PyTorch"
    fix = fixes.get(band, f"keep {keep} here: this device lacks fast kernels for it, or the model is too small")
    yield _make_finding("speed-up", cell, text, fix, factor=factor)


def _check_drift(cell: CellResult) -> Iterator[BenchFinding]:
    if cell.drift is None:
        return
    fix = "keep sensitive parts in fp32, use bf16 for its range, or calibrate on real inputs"
    if cell.drift.nonfinite:
        text = f"{cell.drift.nonfinite:,} outputs are not finite in {cell.cell.precision}"
        yield _make_finding("overflow", cell, text, fix, nonfinite=cell.drift.nonfinite)
    elif cell.drift.rel_l2 is not None and cell.drift.rel_l2 > DRIFTS:
        text = f"outputs differ by {cell.drift.rel_l2:.1%} of their length from fp32's"
        yield _make_finding("drift", cell, text, fix, rel_l2=cell.drift.rel_l2)


def _check_gpu_use(cell: CellResult) -> Iterator[BenchFinding]:
    if cell.gpu_ms is None or cell.latency_ms is None or cell.enqueue_ms is None:
        return
    use = cell.gpu_ms.median / cell.latency_ms.median
    if use < LOW_USE:
        text = f"the GPU works in {use:.0%} of a call; the rest are gaps"
        yield _make_finding(
            "gaps", cell, text, "try larger batches, several calls in flight, or CUDA graphs", share=use
        )
    ratio = cell.enqueue_ms.median / cell.gpu_ms.median
    if ratio >= LAUNCH:
        text = f"launching takes {ratio:.2f} times as long as the GPU's work"
        fix = "--compile reduce-overhead (CUDA graphs), or larger batches; times of layers measure Python here"
        yield _make_finding("bound by launches", cell, text, fix, ratio=ratio)


def _check_time_around(cell: CellResult) -> Iterator[BenchFinding]:
    """Compare a stage with its model's calls alone; an unclear share is only noted."""
    share = cell.extra.get(MODEL_SHARE)
    if share is not None and share["factor"] < NEAR_MODEL:
        text = f"the stage runs at {share['factor']:.0%} of the rate of its model alone"
        text += f", {share['low']:.0%} to {share['high']:.0%} over {share['turns']} turns"
        fix = "look at its phases with --cprofile: the rest is preprocessing, copies and postprocessing"
        yield _make_finding("work around the model", cell, text, fix, share=share["factor"])


def _check_unsteady(cell: CellResult) -> Iterator[BenchFinding]:
    latency = cell.latency_ms
    if latency is not None and latency.std is not None and latency.std > SPREAD * latency.mean:
        share = latency.std / latency.mean
        text = f"calls vary by {share:.0%} of their mean, from {latency.min:,.2f} to {latency.max:,.2f} ms"
        fix = "end other work on the machine, warm up longer, and look at the clocks; then measure again"
        yield _make_finding("unsteady", cell, text, fix, deviation=share)
    reasons = sorted({reason for state in cell.clocks for reason in state.get("throttled", ())})
    if reasons:
        text = f"the GPU ran below its clock: {', '.join(reasons)}"
        yield _make_finding("throttled", cell, text, "cool it, or compare only with figures taken in the same state")


def _check_weak(cell: CellResult) -> Iterator[BenchFinding]:
    if cell.peak_share is None or cell.peak_share >= WEAK_PEAK:
        return
    text = f"the model reaches {cell.peak_share:.1%} of the device's measured arithmetic"
    numbers = {"share": cell.peak_share}
    if cell.bandwidth_share is None or cell.bandwidth_share < BANDWIDTH:
        fix = "try larger batches, or --compile default: most of a call is no arithmetic"
    else:
        text += f" and {cell.bandwidth_share:.0%} of its bandwidth, so memory bounds it"
        fix, numbers["bandwidth"] = "try larger batches, a 16-bit type, or --compile default", cell.bandwidth_share
    yield _make_finding("little arithmetic", cell, text, fix, **numbers)


RULES: tuple[Rule, ...] = (
    _check_layers,
    _check_uneven,
    _check_memory,
    _check_speed_up,
    _check_drift,
    _check_gpu_use,
    _check_time_around,
    _check_unsteady,
    _check_weak,
)


def _make_finding(rule: str, cell: CellResult, text: str, fix: str, **numbers: float) -> BenchFinding:
    return BenchFinding.of(rule, f"{cell.model}, {cell.cell.title}", text, fix, **numbers)
