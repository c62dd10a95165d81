"""All figures of one cell, with its outputs' difference from fp32's, and its speed beside fp32's in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from framekiln.device import Meter, is_out_of_memory, release_memory, torch, traffic_of, wait, weights_bytes
from framekiln.lab.measure.device_facts import gpu_states, peak_gb_s, peak_tflops
from framekiln.lab.measure.layers import WHOLE, measure_layers
from framekiln.lab.measure.memory import measure_leak, measure_memory
from framekiln.lab.measure.precision import FP32, is_full
from framekiln.lab.measure.prepared import Prepared, measure_speed
from framekiln.lab.measure.timed import MeasureOptions, TimeLimits, timed
from framekiln.lab.models.registry import BenchModel
from framekiln.lab.modules import UnsupportedError, tensors_in
from framekiln.lab.output.cells import CellResult, Drift, SpeedUp

if TYPE_CHECKING:
    from collections.abc import Mapping

TURNS = 5
"""Turns of two variants, A B A B ...: other load on the machine then disturbs both."""
SLOW_S = 1.0  # s; one turn of slower calls is enough: it takes two of each

_TURN = TimeLimits(warmup=1, least=1, wanted=3, seconds=0.2, patience_s=1.0)
ABOVE = "more than the measured peak: other work slowed the peak's measurement, or its shape has a slower kernel here"
CACHED = "more traffic than the measured bandwidth: caches serve a part, or other work slowed the measurement"
MODEL_SHARE = "model_share"
"""Name of the extra figure with a stage's rate as a share of its model's."""
_LAYER_CALLS = 20  # timed calls with hooks: enough for a mean and its spread


def drift(outputs: Any, reference: Any) -> Drift:
    """Compare floating-point outputs with a reference's, all of them together in float64.

    Distances are None if a value is finite in the reference but not here, and without floating-point outputs.
    """
    floats = ([tensor for tensor in tensors_in(value) if tensor.is_floating_point()] for value in (outputs, reference))
    pairs = list(zip(*floats, strict=True))
    if not pairs:
        return Drift(rel_l2=None, cosine=None, max=None, nonfinite=0)
    ours, theirs = (torch.cat([pair[side].flatten().cpu().double() for pair in pairs]) for side in (0, 1))
    lost = int((~ours.isfinite() & theirs.isfinite()).sum())
    if lost:
        return Drift(rel_l2=None, cosine=None, max=None, nonfinite=lost)
    both = ours.isfinite() & theirs.isfinite()
    ours, theirs = ours[both], theirs[both]
    off, length = (ours - theirs), float(theirs.norm())
    cosine = float(torch.nn.functional.cosine_similarity(ours, theirs, dim=0)) if length else None
    return Drift(
        rel_l2=float(off.norm()) / length if length else None,
        cosine=cosine,
        max=float(off.abs().max()) if len(off) else None,
        nonfinite=0,
    )


def speed_up(call: Callable[[], Any], reference: Callable[[], Any], device: str, turns: int = TURNS) -> SpeedUp:
    """Return how many times as fast a call is as a reference, by medians of calls in turns."""
    ratios = []
    for _ in range(turns):
        loops = [timed(each, partial(wait, device), _TURN, wait_each=True) for each in (reference, call)]
        seconds = [statistics.median(loop.seconds) for loop in loops]
        ratios.append(seconds[0] / seconds[1])
    return SpeedUp(factor=statistics.median(ratios), low=min(ratios), high=max(ratios), turns=turns)


def measure_cell(model: BenchModel, blank: CellResult, options: MeasureOptions) -> CellResult:
    """Return a cell's result with all requested figures."""
    cell, device = blank.cell, options.device
    peaks, about = _measure_peaks(cell.precision, device), model.about()  # the latter sets up a stage
    if device != "cpu":
        Meter(device).clear()
    prepared = model.prepare(cell, device)
    states = gpu_states() if device != "cpu" else []
    result = measure_speed(blank, prepared, options.limits, cold=options.cold_cache)
    if options.cold_cache:
        result.notes += ("caches were flushed before each call",)
    result.params, result.weights_bytes = about["params"], weights_bytes(prepared.roots)
    result.memory = measure_memory(prepared, options.memory_cap_gb)
    result.clocks = tuple(states + (gpu_states() if states else []))
    flops = model.flops(cell, prepared)
    result.flops = flops.get("Global")
    _add_shares(result, prepared, peaks)
    if options.layers:
        _add_layers(result, prepared, options.depth, flops)
    if options.leak:
        result.leak = measure_leak(prepared, options.leak)
    if not is_full(cell.precision) or cell.backend != "torch":
        _add_drift(result, model, prepared)
    prepared.before(0)
    if (alone := prepared.alone()) is not None and result.latency_ms is not None:
        turns = 1 if result.latency_ms.median > 1000 * SLOW_S else TURNS
        share = speed_up(prepared.call, alone, device, turns)  # of a stage and its model's calls alone
        result.extra = {**result.extra, MODEL_SHARE: asdict(share)}
    return result


def _measure_peaks(precision: str, device: str) -> tuple[float | None, float | None]:
    """Return the device's TFLOP/s and GB/s, measured before the model takes memory; None if memory is short."""
    try:
        return peak_tflops(precision, device), peak_gb_s(device)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None, None
    finally:
        release_memory()


def _add_shares(result: CellResult, prepared: Prepared, peaks: tuple[float | None, float | None]) -> None:
    """Add rates of arithmetic and memory traffic, and their shares of the device's rates in a large operation."""
    assert result.items_per_s is not None
    calls_per_s = result.items_per_s / result.items
    is_eager = result.cell.compile == "off" and result.cell.backend == "torch"
    result.traffic = traffic_of(prepared.call) if is_eager else None  # other calls have no torch operators
    result.tflops = result.flops * calls_per_s / 1e12 if result.flops else None
    result.gb_s = result.traffic * calls_per_s / 1e9 if result.traffic else None
    rates = zip((result.tflops, result.gb_s), peaks, strict=True)
    result.peak_share, result.bandwidth_share = (rate / peak if rate and peak else None for rate, peak in rates)
    if peaks[1] is None:
        result.notes += ("no shares of the device's peaks: there is too little memory to measure them",)
    result.notes += (ABOVE,) if (result.peak_share or 0.0) > 1 else ()
    result.notes += (CACHED,) if (result.bandwidth_share or 0.0) > 1 else ()


def _add_layers(result: CellResult, prepared: Prepared, depth: int, flops: Mapping[str, float]) -> None:
    if result.cell.compile != "off":
        result.notes += ("no layers: a compiled model runs past hooks; measure it with --compile off",)
    elif result.cell.backend != "torch":
        result.notes += ("no layers: another runtime runs past hooks; measure them with the backend torch",)
    elif not prepared.roots:
        result.notes += ("no layers: it has no network in torch",)
    else:
        names = {type(root).__name__: path for path, root in prepared.roots.items()}
        layers = measure_layers(prepared.call, prepared.roots, depth, prepared.device, _LAYER_CALLS)
        by_path = {WHOLE: flops.get("Global")}
        for layer in layers:  # torch counts by the root's class and the path below it
            for name, root in names.items():
                below = layer.path.removeprefix(root).removeprefix(".") if root else layer.path
                if (count := flops.get(f"{name}.{below}" if below else name)) is not None:
                    by_path.setdefault(layer.path, count)
        result.layers = tuple(replace(layer, flops=by_path.get(layer.path)) for layer in layers)


def _add_drift(result: CellResult, model: BenchModel, prepared: Prepared) -> None:
    is_eager = result.cell.compile == "off"
    try:
        cell = replace(result.cell, precision=FP32, compile="off", backend="torch")
        reference = model.prepare(cell, prepared.device)
        prepared.before(0)
        reference.before(0)
        outputs = prepared.call(), reference.call()
        if prepared.agreement is None:
            result.drift = drift(*outputs)
        elif (figures := prepared.agreement(*outputs)) is not None:
            result.extra = {**result.extra, "agreement": dict(figures)}
        if is_eager:
            result.speedup = speed_up(prepared.call, reference.call, prepared.device)
        else:
            result.notes += ("speed-up: compare with the cell in fp32; compiled models take no turns",)
    except UnsupportedError as error:
        result.notes += (f"not compared with fp32: {error}",)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        release_memory()
        result.notes += ("not compared with fp32: both together do not fit into memory",)
