"""What a call costs in arithmetic, and how many bytes of weights it reads: facts of the model, not of the card."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_DEEPEST = 8  # objects inside objects: a stage's net is three or four below the stage


def flops_of(call: Callable[[], object]) -> float | None:
    """Floating-point operations that torch is asked for by a call; None where it is asked for none.

    A multiplication and an addition count as two. Only what `torch.utils.flop_counter` knows is counted: matrix
    products, convolutions and attention, also inside scripted modules; other runtimes (MediaPipe, ONNX) are not seen.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten._int_mm: _of_product})
    with counter:
        call()
    return float(counter.get_total_flops()) or None


def _of_product(left: Sequence[int], right: Sequence[int], **_: object) -> int:
    """Of matrices of these shapes: 8-bit products, which torch's own table lacks."""
    return 2 * left[0] * left[1] * right[1]


def weights_bytes(holder: object) -> int | None:
    """Bytes of parameters and buffers of all modules that an object holds, each counted once; None without a module."""
    modules = list(_modules(holder))
    if not modules:
        return None
    tensors = {id(one): one for module in modules for one in (*module.parameters(), *module.buffers())}
    return sum(one.numel() * one.element_size() for one in tensors.values())


def _modules(holder: object) -> Iterator[torch.nn.Module]:
    """Outermost modules that are reached from an object through its attributes."""
    from torch.nn import Module

    seen: set[int] = set()
    waiting: list[tuple[object, int]] = [(holder, 0)]
    while waiting:
        one, depth = waiting.pop()
        if id(one) in seen or depth > _DEEPEST:
            continue
        seen.add(id(one))
        if isinstance(one, Module):
            yield one
        else:
            waiting += [(part, depth + 1) for part in _parts(one)]


def _parts(one: object) -> Iterable[Any]:
    """What an object holds: of a function what it is bound to and closes over; nothing of classes and libraries."""
    if isinstance(one, type | types.ModuleType | str | bytes | int | float):
        return ()
    if isinstance(one, Mapping | list | tuple | set):
        return one.values() if isinstance(one, Mapping) else one
    if isinstance(one, types.MethodType | functools.partial):
        bound = (one.__self__, one.__func__) if isinstance(one, types.MethodType) else (one.func, *one.args)
        return (*bound, *getattr(one, "keywords", {}).values())
    if isinstance(one, types.FunctionType):
        return [cell.cell_contents for cell in one.__closure__ or () if _filled(cell)]
    slots = [getattr(one, name, None) for kind in type(one).__mro__ for name in _names(kind)]
    return [*getattr(one, "__dict__", {}).values(), *slots]


def _names(kind: type) -> Iterable[str]:
    """A class's slots."""
    found = vars(kind).get("__slots__", ())
    return (found,) if isinstance(found, str) else found


def _filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
