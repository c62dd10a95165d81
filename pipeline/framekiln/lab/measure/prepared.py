"""A model made ready for one cell: built, converted, moved, compiled, with its inputs on the device."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from framekiln.device import seeded, torch, wait
from framekiln.lab.backends import backend_call
from framekiln.lab.measure.precision import UnsupportedError, arithmetic, check, converted, dtype_of
from framekiln.lab.models.factory import Built, map_tensors, tensors_in
from framekiln.lab.output.cells import Cell


@dataclass(kw_only=True)
class Prepared:
    """One call of a model, and what belongs to it."""

    call: Callable[[], Any]  # returns the outputs on the device
    device: str
    items: int  # of a call
    frames: int  # of an item
    roots: Mapping[str, torch.nn.Module]  # modules whose layers are measured, by path; before any compilation
    inputs: Any = None  # on the device
    host_inputs: Any = None  # as they come
    set_up_s: float = 0.0
    agreement: Callable[[Any, Any], Mapping[str, float] | None] | None = None  # a stage's own measure of two results
    alone: Callable[[], Callable[[], Any] | None] = lambda: (
        None
    )  # makes the calls of a stage's model alone, if it has some
    before: Callable[[int], None] = lambda _: None  # called before each timed call, with its number

    def wait(self) -> None:
        """Wait until the device is idle."""
        wait(self.device)


def prepare(built: Built, cell: Cell, device: str) -> Prepared:
    """Make a model ready for a cell; the built module stays as it is.

    Raises:
        UnsupportedError: the cell does not exist here.
    """
    check(cell.precision, device)
    began = time.perf_counter()
    host = example_inputs(built, cell)
    dtype = dtype_of(cell.precision)
    inputs = moved(host, device, dtype, channels_last=cell.channels_last)
    module = copy.deepcopy(built.module).to(device)
    module = converted(module, cell.precision, lambda model: run(model, moved(host, device, None)))
    if cell.channels_last:
        module = _channels_last(module)
    call: Callable[[], Any]
    if cell.backend == "torch":
        call = partial(run, compiled(module, cell.compile), inputs)
    else:
        call = backend_call(cell, module, inputs, run, device)

    def scoped() -> Any:
        with ready_to_run(cell.precision, device):
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


@contextmanager
def ready_to_run(precision: str, device: str) -> Iterator[None]:
    """Set arithmetic and inference mode within this block."""
    with torch.inference_mode(), arithmetic(precision, device):
        yield


def example_inputs(built: Built, cell: Cell) -> Any:
    """Return the inputs of a cell on the CPU, the same each time.

    Raises:
        UnsupportedError: the cell asks for an axis that the inputs do not have.
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
    """Return inputs on a device, floating ones in a type (None: as they are)."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.to(device, dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype)
        return tensor.contiguous(memory_format=torch.channels_last) if channels_last and tensor.dim() == 4 else tensor

    return map_tensors(inputs, move)


def compiled(module: Any, mode: str) -> Any:
    """Return a function compiled in a mode of `torch.compile`; the module itself for "off"."""
    if mode == "off":
        return module
    torch._dynamo.reset()
    return torch.compile(module, dynamic=False, mode=None if mode == "default" else mode)


def tensor_bytes(value: Any) -> int:
    """Return the bytes of all tensors in a structure."""
    return sum(tensor.nbytes for tensor in tensors_in(value))


def _channels_last(module: Any) -> Any:
    if not any(tensor.dim() == 4 for tensor in module.parameters()):
        raise UnsupportedError("the model has no weights of two spatial axes, so channels_last changes nothing")
    return module.to(memory_format=torch.channels_last)
