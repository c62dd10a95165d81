"""NVIDIA's management library (NVML), which names GPUs and reads their sensors without a CUDA context."""

import importlib
import os
from typing import Any


def library() -> Any:
    """Return the initialised module `pynvml`; None where no driver responds: the machine has no NVIDIA GPU."""
    return None if silence() else importlib.import_module("pynvml")


def silence() -> str:
    """Return NVML's own reason for not responding; empty if it responds."""
    try:
        importlib.import_module("pynvml").nvmlInit()
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


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
