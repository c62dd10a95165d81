"""Execution of models as their placement says: device, arithmetic, compilation and fixed batch sizes.

The tests of each stage state how far results of a faster way may differ from fp32 on the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pipeline.contract.placement import Placement

if TYPE_CHECKING:
    import torch

    M = TypeVar("M", bound=torch.nn.Module)

SEED = 0
_FULL = (  # out-of-memory messages of the driver, Triton, NVIDIA's libraries, and cuDNN without workspace
    "CUDA error: out of memory",
    "[CUDA]: out of memory",
    "ALLOC_FAILED",
    "unable to find an engine",
)
Call = Callable[[], Any]


def dtype_of(placement: Placement, best: str = "bf16") -> torch.dtype:
    """Return the torch dtype of a model's weights.

    Args:
        placement: its `precision` decides. full: float32. mixed: `best` on a GPU, which is several times as fast, and
            float32 on the CPU, since few CPUs have 16-bit arithmetic. fp16 and bf16: that type.
        best: the 16-bit type that suits the model.
    """
    import torch

    name: str = placement.precision
    if name == "mixed":
        name = "full" if placement.device == "cpu" else best
    return {"full": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name]


def ready(module: M, placement: Placement, dtype: torch.dtype) -> M:
    """Return a module on the placement's device, with weights of this dtype, for inference only.

    Weights are converted before they are copied, so that the device never holds more than it keeps.
    """
    import torch

    module = module.eval().requires_grad_(False).to(dtype).to(placement.device)
    if placement.channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


class Batches:
    """A function of tensors with a common first axis, compiled if the placement says so.

    A compiled function is called with exactly `rows` rows, since each other size would be compiled again. A smaller
    batch is padded with its last row and the result is cut; a larger one is split.
    """

    _recorded: ClassVar[list[Call] | None] = None

    def __init__(self, function: Callable[..., torch.Tensor], placement: Placement, rows: int | None = None) -> None:
        """Wrap a function.

        Args:
            function: maps tensors n ... to a tensor n ...; rows must not depend on each other.
            placement: its `compile`.
            rows: number of rows of a compiled call; None for the placement's `batch`.
        """
        self._rows = rows or placement.batch
        self._fixed = placement.compile
        self._function = function
        if placement.compile:
            import torch

            self._function = torch.compile(function, dynamic=False)

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the function's result for all rows; there must be at least one."""
        if Batches._recorded is not None:
            Batches._recorded.append(partial(self, *tensors))
        if not self._fixed:
            return self._function(*tensors)
        import torch

        with torch.inference_mode():
            parts = zip(*(torch.split(tensor, self._rows) for tensor in tensors), strict=True)
            return torch.cat([self._exactly(part) for part in parts])

    def _exactly(self, part: tuple[torch.Tensor, ...]) -> torch.Tensor:
        import torch

        count = len(part[0])
        # inference tensors only: a tensor from outside of inference mode would cause another compilation
        part = tuple(tensor if tensor.is_inference() else tensor.clone() for tensor in part)
        if count < self._rows:
            missing = self._rows - count
            part = tuple(torch.cat([tensor, tensor[-1:].expand(missing, *tensor.shape[1:])]) for tensor in part)
        try:
            return self._function(*part)[:count].clone()
        except Exception as error:
            if is_out_of_memory(error):  # a smaller batch would be padded to the same size
                self._rows = max(1, self._rows // 2)
            raise


@contextmanager
def recorded_calls() -> Iterator[list[Call]]:
    """Collect the model calls in this block, so that they can be repeated alone with inputs on the device."""
    calls: list[Call] = []
    Batches._recorded = calls
    try:
        yield calls
    finally:
        Batches._recorded = None


@contextmanager
def seeded() -> Iterator[None]:
    """Give modules built in this block the same random weights each time, and restore the generator.

    Weights are drawn on the CPU: a GPU's generator draws other numbers, and would hold them in fp32 first.
    """
    import torch

    with torch.random.fork_rng(devices=()):
        torch.manual_seed(SEED)
        yield


def wait(device: str) -> None:
    """Wait until the device has finished its work."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize(device)


def limit_memory(gigabytes: float) -> None:
    """Limit this process's memory on its GPU; more raises an out-of-memory error, as on a smaller GPU."""
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, gigabytes * 1e9 / total))


def release_memory() -> None:
    """Release cached memory after an out-of-memory error, since smaller blocks may not fit into its gaps."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means out of memory, on a GPU or in the machine.

    torch's allocator raises an exception of its own. Other parts (pinned buffers, cuBLAS handles, workspaces of cuDNN
    and cuFFT) raise a RuntimeError with a known text (`ATen/cuda/Exceptions.h`).
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return isinstance(error, MemoryError)
    is_known_text = isinstance(error, RuntimeError) and any(text in str(error) for text in _FULL)
    return is_known_text or isinstance(error, (MemoryError, torch.OutOfMemoryError))


def is_broken_gpu(error: BaseException) -> bool:
    """Return whether the GPU's context is lost, as after an illegal address; then every later call fails too.

    In a process that uses a GPU, `synchronize` raises the error of a lost context again. In other processes the class
    decides: torch's `AcceleratorError`, or a RuntimeError with a text that starts with "CUDA error".
    """
    torch = sys.modules.get("torch")
    if torch is None or is_out_of_memory(error):
        return False
    if torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False
    is_cuda_error = isinstance(error, RuntimeError) and str(error).startswith("CUDA error")
    return is_cuda_error or isinstance(error, torch.AcceleratorError)


def disable_tf32() -> None:
    """Turn off TF32 in cuDNN's convolutions, so that fp32 is computed in fp32, as in matrix products.

    By default they round to TF32, which has a mantissa of ten bits.
    """
    import torch

    torch.backends.cudnn.allow_tf32 = False


def device_name(device: str) -> str:
    """Return the product name of a device; "cpu" for the CPU."""
    if device == "cpu":
        return device
    import torch

    return str(torch.cuda.get_device_name(device)) if torch.cuda.is_available() else device
