"""Floating-point operations of a call and bytes of a model's weights, which are the same on every device."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_DEEPEST = 16  # levels of references, two for an attribute: a stage's network is three or four below the stage


def flops_of(call: Callable[[], object]) -> float | None:
    """Return the floating-point operations that torch runs in a call; None if there are none.

    A multiplication and an addition count as two. `torch.utils.flop_counter` counts matrix products, convolutions and
    attention, also inside scripted modules. Operations of other runtimes (MediaPipe, ONNX) are not counted.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten._int_mm: _of_product})
    with counter:
        call()
    return float(counter.get_total_flops()) or None


def _of_product(left: Sequence[int], right: Sequence[int], **_: object) -> int:
    """Return the operations of an 8-bit product of matrices of these shapes, which torch's table lacks."""
    return 2 * left[0] * left[1] * right[1]


def weights_bytes(holder: object) -> int | None:
    """Return the bytes of all distinct parameters and buffers of an object's modules; None without a module."""
    modules = list(_modules(holder))
    if not modules:
        return None
    tensors = {id(tensor): tensor for module in modules for tensor in (*module.parameters(), *module.buffers())}
    return sum(tensor.nbytes for tensor in tensors.values())


def _modules(holder: object) -> Iterator[torch.nn.Module]:
    """Yield the outermost modules that can be reached through an object's attributes."""
    from torch.nn import Module

    seen: set[int] = set()
    waiting: list[tuple[object, int]] = [(holder, 0)]
    while waiting:
        item, depth = waiting.pop()
        if id(item) in seen or depth > _DEEPEST:
            continue
        seen.add(id(item))
        if isinstance(item, Module):
            yield item
        else:
            waiting += [(part, depth + 1) for part in _parts(item)]


def _parts(item: object) -> Iterable[Any]:
    """Return the objects that an object refers to; of a function the variables of its closure, of a class none."""
    if isinstance(item, type | types.ModuleType):
        return ()
    return (item.__closure__ or ()) if isinstance(item, types.FunctionType) else gc.get_referents(item)
