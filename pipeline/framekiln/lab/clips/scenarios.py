"""Ways in which frames arrive, after MLPerf Inference: single stream, multiple streams, server and offline.

Requests of a server arrive at random times with a known mean rate. They wait until a batch is full, or until the
oldest of them has lingered long enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Scenario = Literal["single", "multi", "server", "offline"]
SCENARIOS: tuple[Scenario, ...] = ("single", "multi", "server", "offline")

Handle = Callable[[int], None]
"""Takes a number of frames through the whole way, and returns when all are done."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """One batch."""

    arrivals: tuple[float, ...]  # s, of its frames
    start: float
    end: float

    @property
    def latencies(self) -> list[float]:
        """Seconds from each frame's arrival to the end of its batch."""
        return [self.end - arrival for arrival in self.arrivals]


@dataclass(frozen=True, kw_only=True)
class Load:
    """The frames of a measurement and how they arrive."""

    scenario: Scenario = "single"
    frames: int = 120  # more than the hundred that a p95 needs
    batch: int = 1  # most frames of a batch; of several streams, their number
    rate: float = 30.0  # requests a second of a server: those of one common camera
    linger_s: float = 0.0
    clock: Callable[[], float] = field(default=time.perf_counter)
    sleep: Callable[[float], None] = field(default=time.sleep)

    def serve(self, handle: Handle) -> list[Served]:
        """Handle all frames, and return the batches in order."""
        if self.scenario == "server":
            return self.serve_arrivals(handle, arrivals(self.frames, self.rate, self.clock()))
        size = 1 if self.scenario == "single" else self.batch
        began, done = self.clock(), list[Served]()
        for first in range(0, self.frames, size):
            start, number = self.clock(), min(size, self.frames - first)
            handle(number)
            arrived = began if self.scenario == "offline" else start
            done.append(Served(arrivals=(arrived,) * number, start=start, end=self.clock()))
        return done

    def serve_arrivals(self, handle: Handle, times: Sequence[float]) -> list[Served]:
        """Handle requests that arrive at known times, in ascending order, in dynamic batches."""
        done: list[Served] = []
        first = 0
        while first < len(times):
            full = times[first + self.batch - 1] if first + self.batch <= len(times) else float("inf")
            self._wait_until(max(times[first], min(times[first] + self.linger_s, full)))
            start = self.clock()
            waiting = [arrival for arrival in times[first : first + self.batch] if arrival <= start]
            handle(len(waiting))
            done.append(Served(arrivals=tuple(waiting), start=start, end=self.clock()))
            first += len(waiting)
        return done

    def _wait_until(self, moment: float) -> None:
        while (left := moment - self.clock()) > 0:
            self.sleep(left)


def arrivals(frames: int, rate: float, start: float) -> list[float]:
    """Return seeded random times in s, with independent pauses of 1/rate on average: a Poisson process."""
    pauses = np.random.default_rng(0).exponential(1 / rate, frames)
    return [float(moment) for moment in start + np.cumsum(pauses)]
