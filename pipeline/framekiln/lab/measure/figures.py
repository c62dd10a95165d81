"""All figures of one cell."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from framekiln.device import Meter, is_out_of_memory, release_memory, traffic_of, weights_bytes
from framekiln.lab.measure.device_facts import gpu_states, peak_gb_s, peak_tflops
from framekiln.lab.measure.drift import SLOW_S, TURNS, drift, speed_up
from framekiln.lab.measure.layers import WHOLE, measure_layers
from framekiln.lab.measure.memory import measure_leak, measure_memory
from framekiln.lab.measure.options import MeasureOptions
from framekiln.lab.measure.precision import FP32, UnsupportedError
from framekiln.lab.measure.prepared import Prepared
from framekiln.lab.measure.speed import Speed, measure_speed
from framekiln.lab.models.model import BenchModel
from framekiln.lab.output.cells import Cell, CellResult, Layer

if TYPE_CHECKING:
    from collections.abc import Mapping

ABOVE = "more than the measured peak: other work slowed that measurement down, or its shape has a slower kernel here"
CACHED = "more traffic than the measured bandwidth: caches serve a part, or other work slowed that measurement down"
MODEL_SHARE = "model_share"
"""Name of the extra figure with a stage's rate as a share of its model's."""
_LAYER_CALLS = 20  # timed calls with hooks, enough for a mean and its spread


def measure_cell(model: BenchModel, blank: CellResult, options: MeasureOptions) -> CellResult:
    """Return a cell's result with all figures that were asked for."""
    cell, device = blank.cell, options.device
    peaks, about = _peaks(cell.precision, device), model.about()  # a stage is set up for the latter
    if device != "cpu":
        Meter(device).clear()
    prepared = model.prepare(cell, device)
    states = gpu_states() if device != "cpu" else []
    speed = measure_speed(prepared, options.limits, cold=options.cold_cache)
    result = _with_speed(blank, prepared, speed)
    if options.cold_cache:
        result = _noted(result, "caches were flushed before each call")
    result = replace(
        result,
        params=about["params"],
        weights_bytes=weights_bytes(prepared.roots),
        memory=measure_memory(prepared, options.memory_cap_gb),
        clocks=tuple(states + (gpu_states() if states else [])),
    )
    flops = model.flops(cell, prepared)
    result = _with_shares(replace(result, flops=flops.get("Global")), prepared, peaks)
    if options.layers:
        result = _with_layers(result, prepared, options.depth, flops)
    if options.leak:
        result = replace(result, leak=measure_leak(prepared, options.leak))
    is_reference = cell.precision == FP32 and cell.backend == "torch"
    return _with_model_share(result if is_reference else _with_drift(result, model, prepared), prepared)


def _with_speed(blank: CellResult, prepared: Prepared, speed: Speed) -> CellResult:
    rate = prepared.items * speed.calls / speed.wall_s
    is_compiled = blank.cell.compile != "off"
    return replace(
        blank,
        items=prepared.items,
        warmup=speed.warmup,
        set_up_s=prepared.set_up_s,
        compile_s=max(0.0, speed.first_s - speed.latency.median / 1000) if is_compiled else None,
        latency_ms=speed.latency,
        enqueue_ms=speed.enqueue,
        gpu_ms=speed.gpu,
        h2d_ms=speed.h2d_ms,
        d2h_ms=speed.d2h_ms,
        item_ms=speed.latency.median / prepared.items,
        items_per_s=rate,
        frames_per_s=rate * prepared.frames,
        item_j=joules / speed.calls / prepared.items if (joules := speed.energy.joules) is not None else None,
        no_energy=speed.energy.why,
    )


def _peaks(precision: str, device: str) -> tuple[float | None, float | None]:
    """Return the device's TFLOP/s and GB/s, measured before the model takes memory; None where they lack memory."""
    try:
        return peak_tflops(precision, device), peak_gb_s(device)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None, None
    finally:
        release_memory()


def _with_shares(result: CellResult, prepared: Prepared, peaks: tuple[float | None, float | None]) -> CellResult:
    """Add rates of arithmetic and memory traffic, and their shares of what the device reached in a large operation."""
    assert result.items_per_s is not None
    calls_per_s = result.items_per_s / result.items
    tflops = result.flops * calls_per_s / 1e12 if result.flops else None
    is_eager = result.cell.compile == "off" and result.cell.backend == "torch"
    traffic = traffic_of(prepared.call) if is_eager else None  # other calls have no operators of torch
    gb_s = traffic * calls_per_s / 1e9 if traffic else None
    shares = [rate / peak if rate and peak else None for rate, peak in zip((tflops, gb_s), peaks, strict=True)]
    result = replace(
        result,
        tflops=tflops,
        peak_share=shares[0],
        traffic=traffic,
        gb_s=gb_s,
        bandwidth_share=shares[1],
    )
    if peaks[1] is None:
        return _noted(result, "no shares of the device's peaks: there is too little memory to measure them")
    noted = _noted(result, ABOVE) if (shares[0] or 0.0) > 1 else result
    return _noted(noted, CACHED) if (shares[1] or 0.0) > 1 else noted


def _with_layers(result: CellResult, prepared: Prepared, depth: int, flops: Mapping[str, float]) -> CellResult:
    if result.cell.compile != "off":
        return _noted(result, "no layers: a compiled model runs past hooks; measure it with --compile off")
    if result.cell.backend != "torch":
        return _noted(result, "no layers: another runtime runs past hooks; measure them with the backend torch")
    if not prepared.roots:
        return _noted(result, "no layers: it has no network in torch")
    names = {type(root).__name__: path for path, root in prepared.roots.items()}
    layers = measure_layers(prepared.call, prepared.roots, depth, prepared.device, _LAYER_CALLS)
    return replace(result, layers=tuple(_counted(layer, names, flops) for layer in layers))


def _counted(layer: Layer, roots: Mapping[str, str], flops: Mapping[str, float]) -> Layer:
    """Return a layer with its FLOPs, which torch counts by the root's class and the path below it."""
    if layer.path == WHOLE:
        return replace(layer, flops=flops.get("Global"))
    for name, root in roots.items():
        below = layer.path.removeprefix(root).removeprefix(".") if root else layer.path
        if (count := flops.get(f"{name}.{below}" if below else name)) is not None:
            return replace(layer, flops=count)
    return layer


def _with_drift(result: CellResult, model: BenchModel, prepared: Prepared) -> CellResult:
    """Add the difference from fp32's outputs and, of eager models, the speed beside it in turns."""
    is_eager = result.cell.compile == "off"
    try:
        reference = model.prepare(reference_cell(result.cell), prepared.device)
        prepared.before(0)
        reference.before(0)
        outputs = prepared.call(), reference.call()
        if prepared.agreement is None:
            result = replace(result, drift=drift(*outputs))
        elif (figures := prepared.agreement(*outputs)) is not None:
            result = replace(result, extra={**result.extra, "agreement": dict(figures)})
        if is_eager:
            result = replace(result, speedup=speed_up(prepared.call, reference.call, prepared.device))
    except UnsupportedError as error:
        return _noted(result, f"not compared with fp32: {error}")
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        release_memory()
        return _noted(result, "not compared with fp32: both together do not fit into memory")
    return (
        result if is_eager else _noted(result, "speed-up: compare with the cell in fp32; compiled models take no turns")
    )


def _with_model_share(result: CellResult, prepared: Prepared) -> CellResult:
    """Add the rate of a stage as a share of its model's calls alone, in turns; the rest is the work around them."""
    prepared.before(0)
    if (alone := prepared.alone()) is None or result.latency_ms is None:
        return result
    turns = 1 if result.latency_ms.median > 1000 * SLOW_S else TURNS
    share = speed_up(prepared.call, alone, prepared.device, turns)
    return replace(result, extra={**result.extra, MODEL_SHARE: asdict(share)})


def reference_cell(cell: Cell) -> Cell:
    """Return the cell whose outputs another precision's are compared with: fp32, eager."""
    return replace(cell, precision=FP32, compile="off", backend="torch")


def _noted(result: CellResult, note: str) -> CellResult:
    return replace(result, notes=(*result.notes, note))
