"""NVIDIA's management library (NVML), found once: it names cards and reads their meters without a CUDA context."""

from __future__ import annotations

import importlib
from typing import Any


def library() -> Any:
    """The module `pynvml`, set up: of the package nvidia-ml-py, else the copy that Ray brings.

    Returns:
        None where no driver answers, which means that the machine has no GPU of NVIDIA's.
    """
    for name in ("pynvml", "ray._private.thirdparty.pynvml"):
        try:
            found = importlib.import_module(name)
        except ImportError:
            continue
        try:
            found.nvmlInit()
        except Exception:  # no driver, or no right to ask it
            return None
        return found
    return None


def handles(nvml: Any) -> list[Any]:
    """Each card's handle, in the driver's order; none where `nvml` is None."""
    if nvml is None:
        return []
    return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]


def text(value: bytes | str) -> str:
    """A name as NVML gives it: bytes in older versions of the module."""
    return value.decode() if isinstance(value, bytes) else value
