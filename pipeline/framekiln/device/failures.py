"""Recognition of errors with a meaning: out of memory, a lost GPU, and a process that is asked to end."""

import signal
import sys
import threading
import traceback
from contextlib import suppress

_FULL = (  # out-of-memory messages of torch on a CPU, the driver, Triton, NVIDIA's libraries, cuDNN without workspace
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA error: out of memory",
    "[CUDA]: out of memory",
    "ALLOC_FAILED",
    "unable to find an engine",
)


class OwnerEndedError(RuntimeError):
    """The thread that calls the models has ended; this process computes no more."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the thread that calls the models has ended: {type(cause).__name__}: {message_of(cause)}")


def message_of(error: BaseException) -> str:
    """Return an exception's message as text that UTF-8 can encode, even if its class cannot make it."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except (Exception, SystemExit, GeneratorExit) as other:
        return f"its message raised {type(other).__name__}"


def release_memory() -> None:
    """Release cached memory after an out-of-memory error, since smaller blocks may not fit into its gaps.

    If an earlier kernel failed, the next call raises its error again, where it is expected.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        with suppress(RuntimeError):
            torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means out of memory, on a GPU or in the machine.

    torch's allocator raises an exception of its own. Other parts (pinned buffers, cuBLAS handles, workspaces of cuDNN
    and cuFFT) raise a RuntimeError with a known text (`ATen/cuda/Exceptions.h`).
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return isinstance(error, MemoryError)
    is_known_text = isinstance(error, RuntimeError) and any(text in message_of(error) for text in _FULL)
    return is_known_text or isinstance(error, (MemoryError, torch.OutOfMemoryError))


def is_end_of_process(error: BaseException) -> bool:
    """Return whether this process's handler of SIGTERM or SIGINT raised an exception. Then no row is to blame."""
    if isinstance(error, KeyboardInterrupt) and _has_plain_handler():
        return True
    handlers = [getattr(signal.getsignal(number), "__code__", None) for number in (signal.SIGTERM, signal.SIGINT)]
    frames = traceback.walk_tb(error.__traceback__)
    return not isinstance(error, Exception) and any(frame.f_code in handlers for frame, _ in frames)


def mark_interrupts() -> None:
    """Replace Python's handler of SIGINT by one with a frame, which tells a signal from a stage's own interrupt."""
    if _has_plain_handler():
        signal.signal(signal.SIGINT, _interrupt)


def _has_plain_handler() -> bool:
    """Return whether a signal would interrupt this thread without a frame in the traceback."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def is_broken_gpu(error: BaseException) -> bool:
    """Return whether the GPU's context is lost, as after an illegal address. Then every later call fails too.

    In a process that uses a GPU, `synchronize` raises the error of a lost context again. In other processes the class
    decides: torch's `AcceleratorError`, or a RuntimeError with a text that starts with "CUDA error". A process without
    its owner thread counts as one without a GPU.
    """
    if isinstance(error, OwnerEndedError):
        return True
    torch = sys.modules.get("torch")
    if torch is None or is_out_of_memory(error):
        return False
    if torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False
    is_cuda_error = isinstance(error, RuntimeError) and message_of(error).startswith("CUDA error")
    return is_cuda_error or isinstance(error, torch.AcceleratorError)
