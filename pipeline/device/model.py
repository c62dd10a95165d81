"""A model runs as its placement says: where, in which arithmetic, compiled or not, in batches of one size.

What a stage does with it stays the same: that a faster way gives the same result within a stated tolerance is each
stage's own test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pipeline.stage import Placement

if TYPE_CHECKING:
    import torch

    M = TypeVar("M", bound=torch.nn.Module)

SEED = 0
_FULL = (  # what the driver, Triton, NVIDIA's libraries, and cuDNN for want of workspace say of memory that ran out
    "CUDA error: out of memory",
    "[CUDA]: out of memory",
    "ALLOC_FAILED",
    "unable to find an engine",
)
Call = Callable[[], Any]


def dtype_of(placement: Placement, best: str = "bf16") -> torch.dtype:
    """The torch dtype of a model's weights.

    Args:
        placement: its `precision`: full is float32; mixed is float32 on the CPU, where few processors have arithmetic
            for less, and `best` on a GPU, where that is several times as fast; fp16 and bf16 are what they say.
        best: the 16-bit type that suits the model.
    """
    import torch

    name = placement.precision
    if name == "mixed":
        name = "full" if placement.device == "cpu" else best
    return {"full": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name]


def ready(module: M, placement: Placement, dtype: torch.dtype) -> M:
    """A module on the placement's device, with weights of this dtype, for inference only.

    They get their dtype before they get there, so that the device never holds more of them than it keeps.
    """
    import torch

    module = module.eval().requires_grad_(False).to(dtype).to(placement.device)
    if placement.channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


class Batches:
    """A function of tensors that share their first axis, called as the placement says.

    Compiled, it is called on exactly `rows` rows, since each new size would be compiled anew: a smaller batch is
    filled up with its last row and the answer cut, a larger one goes in parts.
    """

    _heard: ClassVar[list[Call] | None] = None

    def __init__(self, function: Callable[..., torch.Tensor], placement: Placement, rows: int | None = None) -> None:
        """Wrap a function.

        Args:
            function: of tensors n ..., to a tensor n ...; rows must not depend on each other.
            placement: its `compile`.
            rows: of a compiled call; None for the placement's `batch_rows`.
        """
        self._rows = rows or placement.batch_rows
        self._fixed = placement.compile
        self._function = function
        if placement.compile:
            import torch

            self._function = torch.compile(function, dynamic=False)

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """The function's answer for all rows, of which there is at least one."""
        if Batches._heard is not None:
            Batches._heard.append(partial(self, *tensors))
        if not self._fixed:
            return self._function(*tensors)
        import torch

        with torch.inference_mode():
            parts = zip(*(torch.split(tensor, self._rows) for tensor in tensors), strict=True)
            return torch.cat([self._exactly(part) for part in parts])

    def _exactly(self, part: tuple[torch.Tensor, ...]) -> torch.Tensor:
        import torch

        count = len(part[0])
        # one kind of tensor: for one that was made outside of inference mode, the function would be compiled again
        part = tuple(tensor if tensor.is_inference() else tensor.clone() for tensor in part)
        if count < self._rows:
            missing = self._rows - count
            part = tuple(torch.cat([tensor, tensor[-1:].expand(missing, *tensor.shape[1:])]) for tensor in part)
        try:
            return self._function(*part)[:count].clone()
        except Exception as error:
            if is_out_of_memory(error):  # fewer rows would be filled up to as many again
                self._rows = max(1, self._rows // 2)
            raise


@contextmanager
def overheard() -> Iterator[list[Call]]:
    """Calls of models inside, to be made again: the model alone, on input that lies on the device already."""
    calls: list[Call] = []
    Batches._heard = calls
    try:
        yield calls
    finally:
        Batches._heard = None


@contextmanager
def seeded() -> Iterator[None]:
    """Modules built inside get the same random weights each time; the generator is put back.

    They are made on the CPU: another generator draws other numbers, and a card need not hold them in fp32 first.
    """
    import torch

    with torch.random.fork_rng(devices=()):
        torch.manual_seed(SEED)
        yield


def wait(device: str) -> None:
    """Until the device has done what it was asked for, so that a phase's time is its own."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize(device)


def limit_memory(gigabytes: float) -> None:
    """Let this process allocate at most so much on its GPU; more raises, as on a smaller card."""
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, gigabytes * 1e9 / total))


def release_memory() -> None:
    """Give back what the allocator keeps, after memory ran out: smaller pieces may not fit into its gaps."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on a GPU or in the machine; false where torch was never loaded.

    torch's allocator has an exception of its own for it. Other parts (pinned buffers, handles of cuBLAS, workspaces of
    cuDNN and cuFFT) say so in a RuntimeError's text: `ATen/cuda/Exceptions.h`.
    """
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError):
        return True
    if torch is None or isinstance(error, torch.OutOfMemoryError):
        return torch is not None
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _FULL)


def is_broken_gpu(error: BaseException) -> bool:
    """Whether the GPU's context is lost, as after a wrong address: every later call of this process fails likewise.

    A process that uses a GPU asks it: a lost one answers every question with the error that broke it. Elsewhere the
    error's kind tells: torch's `AcceleratorError`, or a RuntimeError whose text starts with "CUDA error".
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
    said = isinstance(error, RuntimeError) and str(error).startswith("CUDA error")
    return said or isinstance(error, torch.AcceleratorError)


def plain_convolutions() -> None:
    """Have cuDNN's convolutions compute fp32 in fp32, as products do: by default they take TF32, of ten bits."""
    import torch

    torch.backends.cudnn.allow_tf32 = False


def device_name(device: str) -> str:
    """What a device is called by its maker; "cpu" for the processor."""
    if device == "cpu":
        return device
    import torch

    return str(torch.cuda.get_device_name(device)) if torch.cuda.is_available() else device
