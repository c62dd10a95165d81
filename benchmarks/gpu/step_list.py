"""The steps by name, with their limits."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.gpu.options import GpuOptions
from benchmarks.gpu.results import Record


@dataclass(frozen=True, kw_only=True)
class GpuStep:
    """One step: a function that records its figures, in a process of its own."""

    name: str
    use: str  # module:function
    about: str
    limit_s: float  # the process is ended after it
    needs: tuple[str, ...] = ()  # packages without which it is skipped

    def load(self) -> Callable[[GpuOptions, Record], None]:
        """Return the function."""
        module, _, name = self.use.partition(":")
        function: Callable[[GpuOptions, Record], None] = getattr(importlib.import_module(module), name)
        return function

    @property
    def missing(self) -> list[str]:
        """Packages that are needed and not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


def _step(name: str, limit_s: float, about: str, *needs: str) -> GpuStep:
    return GpuStep(name=name, use=f"benchmarks.gpu.steps.{name}:measure", about=about, limit_s=limit_s, needs=needs)


STEPS = (
    _step("machine", 40, "versions, and rates of copies, of memory and of matrix products"),
    _step("equality", 200, "each stage on the GPU against fp32 on the CPU; uploads in turns"),
    _step("warm_up", 240, "set-up and first call of compiled stages, with an empty cache and with a filled one"),
    _step("ceilings", 200, "each model alone, on its own terms"),
    _step("shares", 300, "each stage as a worker runs it, against its model's ceiling"),
    _step("memory", 120, "limits on memory: they are kept, and no row is lost"),
    _step("processes", 100, "one process on the GPU against two"),
    _step("engine", 150, "a run over 6,000 photos: start-up, steady rate, tail", "ray"),
    _step("capped", 240, "all stages on a GPU of 8 GB", "ray"),
    _step("calibration", 200, "a calibration, and what it predicts of the run", "ray"),
)
"""In the order in which they run; a later one may read what an earlier one recorded or wrote."""
