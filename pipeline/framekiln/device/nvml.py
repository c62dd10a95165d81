"""NVIDIA's management library (NVML), which names GPUs and reads their sensors without a CUDA context."""

import ctypes
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
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


def find_visible(visible: str, uuids: Sequence[str], gpus: int) -> Iterator[int]:
    """Yield the places of the GPUs that a value of `CUDA_VISIBLE_DEVICES` leaves, in its order.

    A word is the number of one of the first `gpus`, or a UUID or its beginning. As in CUDA, the first unknown word
    ends the list.
    """
    for word in map(str.strip, visible.split(",")):
        if word.isdecimal():
            place = int(word) if int(word) < gpus else None
        else:
            place = next((i for i, uuid in enumerate(uuids) if word and uuid.startswith(word)), None)
        if place is None:
            return
        yield place


def handles(nvml: Any, visible: str | None = None) -> list[Any]:
    """Return the handles of all GPUs, or of the GPUs in `visible`. Empty if `nvml` is None."""
    if nvml is None:
        return []
    found = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    if visible is None or "MIG-" in visible:  # a part of a GPU has few figures of its own
        return found
    uuids = [nvml.nvmlDeviceGetUUID(handle) for handle in found]
    return [found[place] for place in find_visible(visible, uuids, len(found))]


def visible_handles(nvml: Any) -> list[Any]:
    """Return the handles of the GPUs that this process may use: all, or those that CUDA_VISIBLE_DEVICES names."""
    return handles(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"))
