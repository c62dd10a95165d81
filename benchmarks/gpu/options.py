"""The settings of all steps, and what follows from them: profile, sizes, seconds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from benchmarks.made_rows import PHOTO, Size
from framekiln.device.nvml import handles, library
from framekiln.planning.manifest import read_profile

PROFILES = ("memory-constrained", "gpu-12gb", "high-throughput", "gpu-24gb", "gpu-80gb", "gpu-h200")
"""Shipped profiles with a GPU, by its size."""

SMALL_PHOTO: Size = (256, 320)
_USABLE = 0.92  # of a GPU's memory; the shipped profiles use 0.88 to 0.92 of theirs
_ROOMY_GB = 70.0  # memory that holds several processes with large models side by side


@dataclass(frozen=True, kw_only=True)
class GpuOptions:
    """The command line's settings."""

    folder: Path  # for files of the steps
    device: str = "cuda"
    small: bool = False  # small models, few rows, short timings
    compile: bool = True  # also compiled models

    @property
    def seconds(self) -> float:
        """Length of a timed loop."""
        return 0.1 if self.small else 2.0

    @property
    def photo(self) -> Size:
        """Size of one photo."""
        return SMALL_PHOTO if self.small else PHOTO

    @property
    def threads(self) -> int:
        """Threads of work on the CPU: small work does not share the cores well."""
        return 1 if self.small else len(os.sched_getaffinity(0))

    @property
    def profile(self) -> str:
        """The shipped profile for this GPU: the smallest that uses nearly all of its memory."""
        if self.device == "cpu":
            return "cpu-only"
        total = gpu_gb()
        limits = {name: read_profile(name).gpu_vram_gb or 0.0 for name in PROFILES}
        return next((name for name in PROFILES if limits[name] >= 0.8 * total), PROFILES[-1])

    @property
    def vram_cap(self) -> float | None:
        """Memory for a run in GB, where the profile is of a larger GPU; else None."""
        limit = _USABLE * gpu_gb()
        return limit if self.device != "cpu" and (read_profile(self.profile).gpu_vram_gb or 0.0) > limit else None

    @property
    def at_once(self) -> int:
        """Processes that set models up side by side."""
        return 5 if self.device != "cpu" and gpu_gb() >= _ROOMY_GB else 1


def gpu_gb() -> float:
    """Return the memory of the first GPU in GB; 0 without one."""
    nvml = library()
    return next((nvml.nvmlDeviceGetMemoryInfo(handle).total / 1e9 for handle in handles(nvml)), 0.0)
