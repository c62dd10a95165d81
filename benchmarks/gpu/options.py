"""The settings of all steps, and a file of results for each: lines of JSON that its process appends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.made_rows import PHOTO, Size
from framekiln.device.cores import usable_cores
from framekiln.device.nvml import library, visible_handles
from framekiln.planning.machine import fitting_profile

T = TypeVar("T")
Recorder = Callable[..., None]
"""The type of `Results.record`: figures by name; `ok=False` is a failed check."""
SMALL_PHOTO: Size = (256, 320)
_SAYING_S = 3.0
ROOMY_GB = 70.0  # memory that holds several processes with large models side by side


class SkippedError(Exception):
    """The reason why a step has nothing to measure here."""


class Results:
    """A step's file of results."""

    def __init__(self, path: Path) -> None:
        self._path, self._began = path, time.monotonic()

    def record(self, **figures: Any) -> None:
        """Append a line, which survives whatever happens to the process next."""
        line = json.dumps(rounded(figures | {"at_s": time.monotonic() - self._began}))
        with self._path.open("a") as file:
            file.write(line + "\n")


def results_path(folder: Path, step: str) -> Path:
    """Return the file of a step's results."""
    return folder / f"{step}.jsonl"


def read_results(folder: Path, step: str) -> list[dict[str, Any]]:
    """Return a step's lines so far; a torn last line is left out."""
    path = results_path(folder, step)
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def rounded(value: Any) -> Any:
    """Return a value for JSON: four significant digits, null for a number that is not finite."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.4g}") if np.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value if isinstance(value, bool | int | str | None) else str(value)


@dataclass(frozen=True, kw_only=True)
class GpuOptions:
    """The command line's settings."""

    folder: Path  # for files of the steps
    device: str = "cuda"
    small: bool = False  # small models, few rows, short timings
    compile: bool = True  # also compiled models
    words: tuple[str, ...] = ()  # of the titles of cases that are measured; none for all
    ends: float | None = None  # of the step's process, by the monotonic clock; None for never

    def wanted(self, cases: Mapping[str, T]) -> dict[str, T]:
        """Return the cases, by title, that `words` choose."""
        return {title: case for title, case in cases.items() if not self.words or any(w in title for w in self.words)}

    @property
    def left_s(self) -> float | None:
        """Seconds that a command may take, so that there is time to say that it took longer; None for any."""
        return None if self.ends is None else max(0.1, self.ends - time.monotonic() - _SAYING_S)

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
        """Threads of a process's work on the CPU: `at_once` processes have the cores together."""
        return 1 if self.small else max(1, usable_cores() // self.at_once)

    @property
    def profile(self) -> str:
        """The shipped profile for this GPU."""
        return "cpu-only" if self.device == "cpu" else fitting_profile(gpu_gb())[0]

    @property
    def vram_cap(self) -> float | None:
        """Memory for a run in GB, where the profile is of a larger GPU; else None."""
        return None if self.device == "cpu" else fitting_profile(gpu_gb())[1]

    @property
    def at_once(self) -> int:
        """Processes that set models up side by side."""
        return 5 if self.device != "cpu" and gpu_gb() >= ROOMY_GB else 1


def gpu_gb() -> float:
    """Return the memory of the first GPU that may be used in GB; 0 without one."""
    return _memory("total")


def used_gb() -> float:
    """Return what of it is in use, by all programs and by the driver for itself: 0.3 to 0.7 GB on an idle GPU."""
    return _memory("used")


def _memory(kind: str) -> float:
    nvml = library()
    known = (nvml.nvmlDeviceGetMemoryInfo(handle) for handle in visible_handles(nvml))
    return next((float(getattr(memory, kind)) / 1e9 for memory in known), 0.0)
