"""Seconds by phase of a stage's calls."""

from __future__ import annotations

import time
from collections.abc import Mapping

PHASES = ("preprocess", "upload", "infer", "download", "postprocess")
"""Upload is to the device, download back from it."""


class PhaseClock:
    """Seconds by phase, by the CPU's clock; on a GPU a worker sets one that reads the GPU's.

    Time in a nested phase counts for that phase only, so that the sum of all phases is at most the length of the call.
    """

    def __init__(self) -> None:
        self._open: list[float] = []  # start of each open phase, moved forward by the phases nested in it
        self._seconds: dict[str, float] = {}

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by phase since the last `take`."""
        return self._seconds

    def begin(self) -> None:
        """Begin a phase, which may be nested in another one."""
        self._open.append(time.perf_counter())

    def end(self, name: str) -> None:
        """End the phase that began last."""
        now, began = time.perf_counter(), self._open.pop()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - began
        if self._open:
            self._open[-1] += now - began

    def take(self) -> Mapping[str, float]:
        """Return seconds by phase, and count from 0 again."""
        taken, self._seconds = self.seconds, {}
        return taken
