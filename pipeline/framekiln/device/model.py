"""Execution of models in their placement: device, precision, compilation and batch sizes.

Each stage's tests state how far results of a faster way may differ from fp32 on the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

from framekiln.contract.placement import Placement
from framekiln.device.call_scheduler import CallScheduler
from framekiln.device.compiled import Compiled
from framekiln.device.failures import is_out_of_memory
from framekiln.device.kernels import CountedCall, count_call
from framekiln.device.lazy import torch
from framekiln.device.watchdog import GPU_STALL_S, within

M = TypeVar("M", bound="torch.nn.Module")
SEED = 0
_ALLOCATOR_SETTINGS = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}
BF16_CAPABILITY = (8, 0)
"""The first compute capability with bf16 (Ampere); older GPUs emulate it, and have fp16."""
Recorded = Callable[[], Any]
Counted = tuple[tuple[int, bool], CountedCall]
"""The number of a `Batches`, whether it is eager, and a call of it."""


def dtype_of(placement: Placement, best: str = "bf16") -> torch.dtype:
    """Return the torch dtype of a model's weights.

    `placement`: its `precision` decides. auto: `best` on a GPU, which is several times as fast, and float32 on the CPU,
    since few CPUs have 16-bit arithmetic. Others: that type. `best`: the 16-bit type that suits the model. A GPU
    without bf16 gets fp16.
    """
    name: str = placement.precision
    if name == "auto":
        name = "fp32" if placement.device == "cpu" else best
        if name == "bf16" and torch.cuda.is_available() and torch.cuda.get_device_capability() < BF16_CAPABILITY:
            name = "fp16"
    return type_of(name)


def type_of(precision: str) -> torch.dtype:
    """Return the torch dtype of weights in a precision; float32 for precisions that keep the weights, such as tf32."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp16-sums": torch.float16}.get(precision, torch.float32)


def ready(module: M, placement: Placement, dtype: torch.dtype) -> M:
    """Return a module on the placement's device, with weights of this dtype, for inference only.

    Weights are converted before the copy, so that the device never holds more than the result.
    """
    module = module.eval().requires_grad_(False).to(dtype).to(placement.device)
    if placement.channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


class Batches:
    """A function of tensors with a common first axis, compiled if the placement says so.

    A compiled function is called in batches of few sizes (`framekiln.device.compiled`). In a process that works on
    several packets, rows of all of them share batches (`framekiln.device.call_scheduler`).
    """

    calls: ClassVar[CallScheduler] = CallScheduler()  # the owner of this process's calls
    _recorded: ClassVar[list[Recorded] | None] = None
    _counted: ClassVar[list[Counted] | None] = None

    def __init__(
        self,
        function: Callable[..., torch.Tensor],
        placement: Placement,
        rows: int | None = None,
        *,
        unit: int | None = None,
        regions: Sequence[torch.nn.Module] = (),
        eager: bool = False,
    ) -> None:
        """Wrap a function.

        Args:
            function: maps tensors n ... to a tensor n ...; rows must not depend on each other.
            placement: its `compile`.
            rows: most rows of a compiled or joint call; None for the placement's `batch`.
            unit: values of a row of the first tensor for which `rows` is meant, where rows differ much in size: a call
                takes fewer rows of more values and, unless it is compiled, more of fewer. None: `rows`, whatever their
                size.
            regions: modules that are compiled one by one, in place of the whole function; see `Compiled`.
            eager: never compiled, whatever the placement says.
        """
        self._budget, self._unit = float(rows or placement.batch), unit
        self._function, self._sums_in_fp16 = function, placement.precision == "fp16-sums"
        self._eager = eager
        self._compiled = Compiled(function, regions) if placement.compile and not eager else None

    def warm_up(self, *row: torch.Tensor) -> None:
        """Compile for rows of this shape, in a stage's set-up; see `Compiled.warm_up`. Without `compile`, do nothing.

        Without any warm-up, shapes are compiled as they come.
        """
        if self._compiled is not None:
            with summed(in_fp16=self._sums_in_fp16):
                self._compiled.warm_up(*row, most=self.most(row))

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the function's result for all rows; there must be at least one."""
        if Batches._counted is not None:
            Batches._counted.append(((id(self), self._eager), count_call(self._function, tensors)))
            shape, dtype = Batches._counted[-1][1].result
            return torch.zeros(shape, dtype=dtype)
        if Batches._recorded is not None:
            Batches._recorded.append(partial(self, *tensors))
        return Batches.calls.call(self, tensors)

    def direct(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the function's result for all rows, computed now and in this thread."""
        most = self.most(tensors)
        with summed(in_fp16=self._sums_in_fp16):
            if self._compiled is None and (self._unit is None or len(tensors[0]) <= most):
                return self._function(*tensors)
            with torch.inference_mode():
                parts = zip(*(torch.split(tensor, most) for tensor in tensors), strict=True)
                results = [self._compute_part(part, most) for part in parts]
                return results[0] if len(results) == 1 else torch.cat(results)

    def most(self, tensors: Sequence[torch.Tensor]) -> int:
        """Return the most rows of a call with rows of this size, at least one."""
        cost = 1.0 if self._unit is None else tensors[0][:1].numel() / self._unit
        if self._compiled is not None:  # more rows would need more compiled sizes
            cost = max(cost, 1.0)
        return max(1, int(self._budget / cost))

    def halve(self, tensors: Sequence[torch.Tensor]) -> None:
        """Halve the rows of a call, after one with rows of this size did not fit into the memory."""
        if self.most(tensors) > 1:
            self._budget /= 2

    def _compute_part(self, part: tuple[torch.Tensor, ...], most: int) -> torch.Tensor:
        if self._compiled is None:
            return self._function(*part)
        try:
            return self._compiled(*part, most=most)
        except Exception as error:
            if is_out_of_memory(error):  # a smaller batch would be padded to the same size
                self.halve(part)
            raise


@contextmanager
def summed(*, in_fp16: bool) -> Iterator[None]:
    """Let cuBLAS sum products of fp16 matrices in fp16 in this block, if the placement asks for it.

    The setting belongs to the process, so only one thread may call the models: the owner thread if there are several.
    """
    if in_fp16:
        torch.backends.cuda.matmul.allow_fp16_accumulation = True
    try:
        yield
    finally:
        if in_fp16:
            torch.backends.cuda.matmul.allow_fp16_accumulation = False


@contextmanager
def recorded_calls() -> Iterator[list[Recorded]]:
    """Collect the model calls in this block, so that they can be repeated alone with inputs on the device."""
    calls: list[Recorded] = []
    Batches._recorded = calls
    try:
        yield calls
    finally:
        Batches._recorded = None


@contextmanager
def counted_calls() -> Iterator[list[Counted]]:
    """Count the model calls in this block without computing them; their results are zeros."""
    calls: list[Counted] = []
    Batches._counted = calls
    try:
        yield calls
    finally:
        Batches._counted = None


def counting() -> bool:
    """Return whether model calls are counted in the place of making them."""
    return Batches._counted is not None


@contextmanager
def seeded() -> Iterator[None]:
    """Give modules built in this block the same random weights each time, and restore the generator.

    Weights are drawn on the CPU. A GPU's generator draws other numbers, and the GPU would hold them in fp32 first.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(SEED)
        yield


def wait(device: str) -> None:
    """Wait until the device has finished its work."""
    # skipped on "meta", where operations are counted, and if this process has not used the GPU
    if device.startswith("cuda") and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)


def limit_memory(gigabytes: float) -> None:
    """Limit this process's memory on its GPU; more raises an out-of-memory error, as on a smaller GPU."""
    configure_gpu()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, gigabytes * 1e9 / total))


def configure_gpu() -> None:
    """Compute fp32 in fp32, and let segments of GPU memory grow. Call it before this process uses its GPU.

    GPUs have the driver's numbers, as in nvidia-smi; CUDA's own begin with the fastest GPU. By default cuDNN's
    convolutions round to TF32, which has a mantissa of ten bits. Where `TORCH_ALLOW_TF32_CUBLAS_OVERRIDE` is set, as in
    NVIDIA's images, products of matrices do so too. torch's allocator takes memory in pieces of fixed size. A batch of
    another shape cannot use their gaps. A user's own allocator settings stay. Some drivers of WSL (pytorch#192330) and
    Tegra reject growing segments at the first allocation.
    """
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if _ALLOCATOR_SETTINGS & os.environ.keys():
        return
    name, growing = min(_ALLOCATOR_SETTINGS), "expandable_segments:"
    os.environ[name] = f"{growing}True"
    with within(GPU_STALL_S), suppress(RuntimeError):
        if torch.cuda.is_available():
            torch.empty(1, device="cuda")
        return
    os.environ[name] = f"{growing}False"  # an environment variable, so that child processes get it too
    torch._C._accelerator_setAllocatorSettings(os.environ[name])


def device_name(device: str) -> str:
    """Return the product name of a device; "cpu" for the CPU."""
    is_gpu = device != "cpu" and torch.cuda.is_available()
    return str(torch.cuda.get_device_name(device)) if is_gpu else device
