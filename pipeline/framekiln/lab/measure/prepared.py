"""A model prepared for one cell: built, converted, moved, compiled, with inputs on the device; and its timed calls."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from framekiln.device import seeded, torch, type_of, wait
from framekiln.lab.measure.backends import backend_call
from framekiln.lab.measure.device_facts import EnergyCounter
from framekiln.lab.measure.precision import arithmetic, check, converted
from framekiln.lab.measure.timed import Samples, TimeLimits, timed
from framekiln.lab.modules import Built, UnsupportedError, map_tensors
from framekiln.lab.output.cells import Cell, CellResult
from framekiln.planning.sample import Statistics


@dataclass(kw_only=True)
class Prepared:
    """One prepared call of a model."""

    call: Callable[[], Any]  # returns the outputs on the device
    device: str
    items: int  # of a call
    frames: int  # of an item
    roots: Mapping[str, torch.nn.Module]  # modules with measured layers, by path; before compilation
    inputs: Any = None  # on the device
    host_inputs: Any = None  # before the upload
    set_up_s: float = 0.0
    agreement: Callable[[Any, Any], Mapping[str, float] | None] | None = None  # a stage's own comparison of two results
    alone: Callable[[], Callable[[], Any] | None] = lambda: None  # makes calls of a stage's model alone, if it has one
    before: Callable[[int], None] = lambda _: None  # called before each timed call, with its number

    def wait(self) -> None:
        wait(self.device)


def prepare(built: Built, cell: Cell, device: str) -> Prepared:
    """Prepare a model for a cell; the built module stays unchanged.

    Raises UnsupportedError: the cell cannot exist here.
    """
    check(cell.precision, device)
    began = time.perf_counter()
    host = example_inputs(built, cell)
    dtype = type_of(cell.precision)
    inputs = moved(host, device, dtype, channels_last=cell.channels_last)
    module = copy.deepcopy(built.module).to(device)
    module = converted(module, cell.precision, lambda model: run(model, moved(host, device, None)))
    if cell.channels_last:
        if not any(tensor.dim() == 4 for tensor in module.parameters()):
            raise UnsupportedError("the model has no weights of two spatial axes, so channels_last changes nothing")
        module = module.to(memory_format=torch.channels_last)
    call: Callable[[], Any]
    if cell.backend == "torch":
        call = partial(run, compiled(module, cell.compile), inputs)
    else:
        call = backend_call(cell, module, inputs, run, device)

    def scoped() -> Any:
        with torch.inference_mode(), arithmetic(cell.precision, device):
            return call()

    wait(device)
    return Prepared(
        call=scoped,
        device=device,
        items=cell.batch,
        frames=(cell.frames or built.axes.get("frames") or 1) if "frames" in built.axes else 1,
        roots={"": module},
        inputs=inputs,
        host_inputs=host,
        set_up_s=time.perf_counter() - began,
    )


def example_inputs(built: Built, cell: Cell) -> Any:
    """Return the inputs of a cell on the CPU, the same each time.

    Raises UnsupportedError: the cell requests an axis that the inputs lack.
    """
    asked = {"batch": cell.batch, "size": cell.size, "frames": cell.frames}
    for name, value in asked.items():
        if value is not None and name not in built.axes and not (name == "batch" and value == 1):
            raise UnsupportedError(f"the model's inputs have no {name} to vary")
    with seeded():
        return built.inputs(
            **{name: value for name, value in asked.items() if value is not None and name in built.axes}
        )


def run(function: Callable[..., Any], inputs: Any) -> Any:
    """Call a model on a tensor, a tuple of positional arguments or a dict of named ones."""
    if isinstance(inputs, Mapping):
        return function(**inputs)
    return function(*inputs) if isinstance(inputs, list | tuple) else function(inputs)


def moved(inputs: Any, device: str, dtype: torch.dtype | None, *, channels_last: bool = False) -> Any:
    """Return inputs on a device, floating-point ones in a type (None: unchanged)."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.to(device, dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype)
        return tensor.contiguous(memory_format=torch.channels_last) if channels_last and tensor.dim() == 4 else tensor

    return map_tensors(inputs, move)


def compiled(module: Any, mode: str) -> Any:
    """Return a function compiled by a mode of `torch.compile`; for "off" the module itself."""
    if mode == "off":
        return module
    torch._dynamo.reset()
    return torch.compile(module, dynamic=False, mode=None if mode == "default" else mode)


_COPIES = TimeLimits(warmup=2, least=5, wanted=5, seconds=0.05, patience_s=1.0)


def measure_speed(blank: CellResult, prepared: Prepared, limits: TimeLimits, *, cold: bool) -> CellResult:
    """Time a model's calls: each to its end for the latency, and on a GPU also in a row without waits.

    With `cold`, a buffer larger than the caches is written before each call, and no calls are made in a row.
    """
    began = time.perf_counter()
    prepared.call()
    prepared.wait()
    first_s = time.perf_counter() - began  # compiles a compiled model
    event: Any = None if prepared.device == "cpu" else partial(torch.cuda.Event, enable_timing=True)
    counter = EnergyCounter(prepared.device)
    before = _prepare_call(prepared, counter, cold=cold)
    loop = partial(timed, prepared.call, prepared.wait, event=event, before=before)
    single = loop(limits, wait_each=True)
    row = loop(limits) if event and not cold else single
    joules, no_energy = (None, "flushing the caches would count too") if cold else counter.since_mark(row.wall_s)
    copies = _time_copies(prepared) if event else (None, None)
    latency, items = Statistics.of(single.seconds), prepared.items
    rate = items * row.calls / (sum(row.seconds) if cold else row.wall_s)
    return replace(
        blank,
        items=items,
        warmup=1 + single.warmup,
        set_up_s=prepared.set_up_s,
        compile_s=max(0.0, first_s - latency.median / 1000) if blank.cell.compile != "off" else None,
        latency_ms=latency,
        enqueue_ms=Statistics.of(row.enqueue_s, keep=False),
        gpu_ms=Statistics.of(row.gpu_s) if row.gpu_s else None,
        h2d_ms=copies[0],
        d2h_ms=copies[1],
        item_ms=latency.median / items,
        items_per_s=rate,
        frames_per_s=rate * prepared.frames,
        item_j=None if joules is None else joules / row.calls / items,
        no_energy=no_energy,
    )


def _prepare_call(prepared: Prepared, counter: EnergyCounter, *, cold: bool) -> Callable[[int], None]:
    size = 512_000_000 if cold else 0  # above the L3 cache of a current server, 32 to 384 MB
    if cold and prepared.device != "cpu":
        size = 2 * torch.cuda.get_device_properties(prepared.device).L2_cache_size
    buffer = torch.empty(size, dtype=torch.uint8, device=prepared.device)

    def before(number: int) -> None:
        if number == 0:
            counter.mark()
        prepared.before(number)
        if cold:  # replaces the content of all caches
            buffer.zero_()
            prepared.wait()

    return before


def _time_copies(prepared: Prepared) -> tuple[float, float]:
    """Return the median ms of copying the inputs to the device, from pinned memory, and the outputs back."""
    pinned = map_tensors(prepared.host_inputs, lambda tensor: tensor.pin_memory())
    outputs = prepared.call()
    up = partial(map_tensors, pinned, lambda tensor: tensor.to(prepared.device, non_blocking=True))
    down = partial(map_tensors, outputs, lambda tensor: tensor.cpu())
    samples: list[Samples] = [timed(copy, prepared.wait, _COPIES, wait_each=True) for copy in (up, down)]
    ms = [Statistics.of(sample.seconds).median for sample in samples]
    return ms[0], ms[1]
