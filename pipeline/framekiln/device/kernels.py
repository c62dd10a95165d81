"""Counts of a model's call (operations, bytes, launches) that are made without computing it.

torch's fake tensors have a shape and no values. So a call of 1,024 prompts is counted in a second, on any machine.
Bytes are of two kinds. Weights are read whole by each call, however many rows it has. Activations grow with its rows.
Operations come from `torch.utils.flop_counter`; a multiplication and an addition are two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from framekiln.device.lazy import torch


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One operator of a call."""

    flops: float  # of one call; 0 for an operator that a compiler may fuse with another
    moved: float  # bytes of activations that it reads and writes
    held: float  # bytes of weights that it reads
    precision: str  # type of its arithmetic: fp32, fp16, bf16


@dataclass(frozen=True, kw_only=True)
class CountedCall:
    """The kernels of one call, with the number of each."""

    rows: int
    kernels: tuple[tuple[Kernel, int], ...]
    weights: float  # least bytes that the call reads, each weight once
    result: tuple[tuple[int, ...], Any]  # shape and dtype of its tensor


def count_call(function: Callable[..., Any], tensors: tuple[Any, ...]) -> CountedCall:
    """Count a call of a function that maps tensors n ... to a tensor; nothing is computed."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.inference_mode(), fake:
        inputs = [fake.from_tensor(tensor) for tensor in tensors]
        with _make_mode() as seen:
            result = function(*inputs)
    return CountedCall(
        rows=len(tensors[0]),
        kernels=tuple(seen.kernels.items()),
        weights=float(sum(tensor.nbytes for tensor in seen.weights.values())),
        result=(tuple(result.shape), result.dtype),
    )


def _make_mode() -> Any:
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter
    from torch.utils.flop_counter import flop_registry

    attention = torch.ops.aten.scaled_dot_product_attention

    class Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.kernels: Counter[Kernel] = Counter()
            self.weights: dict[int, torch.Tensor] = {}
            self._constant: dict[int, torch.Tensor] = {}  # computed from weights alone, such as views of them

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs, packet = kwargs or {}, func._overloadpacket
            if func.namespace == "prim":  # asks for a tensor's device
                return NotImplemented
            if packet not in flop_registry and packet is not attention:
                with self:
                    result = func.decompose(*args, **kwargs)
                if result is not NotImplemented:
                    return result
            read = [item for item in tree_iter((args, kwargs)) if isinstance(item, torch.Tensor)]
            held = [item for item in read if not isinstance(item, FakeTensor) or id(item) in self._constant]
            result = func(*args, **kwargs)
            written = [item for item in tree_iter(result) if isinstance(item, torch.Tensor)]
            self.weights |= {id(item): item for item in held if not isinstance(item, FakeTensor)}
            if read and len(held) == len(read):
                self._constant |= {id(item): item for item in written}
            elif not func.is_view and not str(func).startswith("aten.empty"):
                self.kernels[_make_kernel(func, args, kwargs, result, read + written, held)] += 1
            return result

    return Kernels()


def _make_kernel(func: Any, args: Any, kwargs: Any, result: Any, every: list[Any], held: list[Any]) -> Kernel:
    """Return an operator; `every`: tensors that it reads or writes, `held`: the weights among them."""
    from torch.utils.flop_counter import flop_registry, sdpa_flop_count

    packet, flops = func._overloadpacket, 0
    if packet is torch.ops.aten.scaled_dot_product_attention:
        flops = sdpa_flop_count(*(item.shape for item in args[:3]))  # type: ignore[no-untyped-call]
    elif packet in flop_registry:
        flops = flop_registry[packet](*args, **kwargs, out_val=result)
    weights, names = sum(item.nbytes for item in held), {torch.float16: "fp16", torch.bfloat16: "bf16"}
    return Kernel(
        flops=float(flops),
        moved=float(sum(item.nbytes for item in every) - weights),
        held=float(weights),
        precision=names.get(every[0].dtype, "fp32") if every else "fp32",
    )


def made_weights() -> Any:
    """Return a context in which random weights stay uninitialised, and linear layers return zeros.

    A set-up that embeds texts then takes a second. Its results have the right shapes and meaningless values.
    """
    from torch.overrides import TorchFunctionMode

    class Made(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs, name = kwargs or {}, getattr(func, "__name__", "")
            if name in ("normal_", "uniform_", "trunc_normal_", "erfinv_"):
                return args[0] if args else kwargs["tensor"]
            if name == "linear" and len(args) >= 2:
                return args[0].new_zeros((*args[0].shape[:-1], len(args[1])))
            return func(*args, **kwargs)

    return Made()
