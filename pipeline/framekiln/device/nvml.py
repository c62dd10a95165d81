"""NVIDIA's management library (NVML), which names GPUs and reads their sensors without a CUDA context."""

import ctypes
import importlib
import os
import subprocess
import sys
from functools import cache
from typing import Any

_ANSWER_S = 30.0  # it wakes sleeping GPUs, one after the other
HANGS = f"no answer within {_ANSWER_S:.0f} s"


def library() -> Any:
    """Return the initialised module `pynvml`; None where no driver responds: the machine has no NVIDIA GPU."""
    return None if silence() else importlib.import_module("pynvml")


def silence() -> str:
    """Return NVML's own reason for not responding, or `HANGS`; empty if it responds."""
    if _hangs():
        return HANGS
    try:
        importlib.import_module("pynvml").nvmlInit()
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


@cache
def _hangs() -> bool:
    """Return whether NVML never returns. A child process asks, as nothing can end a process that the driver holds."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    question = "import ctypes; ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2()"
    child = subprocess.Popen([sys.executable, "-IS", "-c", question])
    try:
        child.wait(_ANSWER_S)
    except subprocess.TimeoutExpired:
        child.kill()  # without waiting for its end
        return True
    return False


def handles(nvml: Any, visible: str | None = None) -> list[Any]:
    """Return the handle of each GPU, in the driver's order; none where `nvml` is None.

    A value of `CUDA_VISIBLE_DEVICES` leaves only the GPUs that it names by number or UUID: a shared machine has others.
    """
    if nvml is None:
        return []
    found = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    if visible is None or "MIG-" in visible:  # a part of a GPU has few figures of its own
        return found
    names = tuple(part.strip() for part in visible.split(",") if part.strip())
    starts = tuple(name for name in names if name.startswith("GPU-"))  # a UUID, or the beginning of one
    return [
        handle
        for number, handle in enumerate(found)
        if str(number) in names or (starts and nvml.nvmlDeviceGetUUID(handle).startswith(starts))
    ]


def visible_handles(nvml: Any) -> list[Any]:
    """Return the handles of the GPUs that this process may use: all, or those that CUDA_VISIBLE_DEVICES names."""
    return handles(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"))
