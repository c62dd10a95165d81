"""Floating-point operations of a call and bytes of a model's weights, which are the same on every device."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from framekiln.device.lazy import torch

_DEEPEST = 16  # levels of references to follow, two for an attribute: a network lies three or four below the stage


def flops_of(call: Callable[[], object]) -> float | None:
    """Return the floating-point operations that torch runs in a call; None if there are none.

    A multiplication and an addition count as two. `torch.utils.flop_counter` counts matrix products, convolutions and
    attention, also inside scripted modules. Operations of other runtimes (MediaPipe, ONNX) are not counted.
    """
    return flops_by_module(call).get("Global")


def flops_by_module(call: Callable[[], object]) -> dict[str, float]:
    """Return the operations of a call by module (`Class.path`), with the sum as `Global`; without zeros."""
    from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

    aten = torch.ops.aten
    attention_on_cpu = aten._scaled_dot_product_flash_attention_for_cpu  # torch's table has only the GPU operators

    def of_attention(query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: object, **__: object) -> int:
        return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]

    def of_product(left: Sequence[int], right: Sequence[int], **_: object) -> int:
        return 2 * left[0] * left[1] * right[1]  # products of 8-bit matrices, which torch's table lacks

    counter = FlopCounterMode(display=False, custom_mapping={aten._int_mm: of_product, attention_on_cpu: of_attention})
    with counter:
        call()
    counts = {path: float(sum(counted.values())) for path, counted in counter.get_flop_counts().items()}
    return {path: count for path, count in counts.items() if count}


def traffic_of(call: Callable[[], object]) -> int:
    """Return the bytes that the operators of a call read and write, as if nothing were cached between two of them.

    Views are left out. Temporary memory inside an operator is not counted.
    """
    from torch.utils._python_dispatch import TorchDispatchMode as Mode
    from torch.utils._pytree import tree_iter

    total = 0

    class Counter(Mode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal total
            result = func(*args, **(kwargs or {}))
            if not func.is_view and not str(func).startswith("aten.empty"):
                total += sum(_count_bytes(item) for item in tree_iter((args, kwargs, result)))
            return result

    with Counter():  # type: ignore[no-untyped-call]
        call()
    return total


def _count_bytes(item: object) -> int:
    return item.nbytes if isinstance(item, torch.Tensor) else 0


def weights_bytes(holder: object) -> int | None:
    """Return the bytes of all distinct parameters and buffers of an object's modules; None without a module.

    A quantised tensor counts as its integers and scales. Weights that `torch.ao` packs for its kernels are no
    parameters; they count at their saved size.
    """
    modules = list(modules_of(holder))
    if not modules:
        return None
    tensors = {id(tensor): tensor for module in modules for tensor in (*module.parameters(), *module.buffers())}
    return sum(map(_count_stored_bytes, tensors.values())) + sum(map(_count_packed_bytes, modules))


def _count_stored_bytes(tensor: torch.Tensor) -> int:
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return tensor.nbytes
    return sum(_count_stored_bytes(getattr(tensor, name)) for name in flatten()[0])


def _count_packed_bytes(module: torch.nn.Module) -> int:
    """Return the bytes of a module's weights that are neither parameters nor buffers, without scalars."""
    from torch.utils._pytree import tree_iter

    if not any(type(part).__module__.startswith("torch.ao.nn.quantized") for part in module.modules()):
        return 0
    known = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    packed = [value for name, value in module.state_dict().items() if name not in known]
    return sum(_count_bytes(item) for item in tree_iter(packed) if getattr(item, "ndim", 0))


def modules_of(holder: object) -> Iterator[torch.nn.Module]:
    """Yield the outermost modules that an object's attributes lead to."""
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
        elif not isinstance(item, type | types.ModuleType):
            parts: Iterable[Any] = gc.get_referents(item)
            if isinstance(item, types.FunctionType):  # refers to all of its module
                parts = item.__closure__ or ()
            waiting += [(part, depth + 1) for part in parts]
