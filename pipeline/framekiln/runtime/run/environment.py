"""The driver's machine and software, as run.json stores them with a run's figures."""

import platform
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from framekiln.planning.processes.resources import gpu_names

_PACKAGES = ("framekiln", "ray", "pyarrow", "numpy", "torch", "opencv-contrib-python", "av", "pillow", "mediapipe")


def environment() -> dict[str, Any]:
    """Return the keys of run.json about this machine and its software."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor(),
        "gpu_names": gpu_names(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "versions": {name: package_version(name) for name in _PACKAGES},
    }


@cache  # a run asks four times for nine packages, 2 ms each
def package_version(name: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    with suppress(PackageNotFoundError):
        return version(name)
    return None


def processor() -> str:
    """Return the model of the processor, if the system reports it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
