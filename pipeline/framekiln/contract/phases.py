"""Seconds by phase of a stage's calls, and the items that they went through; each thread has its own."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

PHASES = ("preprocess", "upload", "queue", "infer", "download", "postprocess")
"""Upload is to the device, download back from it; queue is the wait while the device works for other packets."""


class PhaseClock(threading.local):
    """Seconds by phase, by the CPU's clock; on a GPU a worker sets one that reads the GPU's.

    Threads that call one stage share its clock and see only their own seconds.

    Time in a nested phase counts for that phase only, so that the sum of all phases is at most the length of the call.
    """

    def __init__(self) -> None:
        self._open: list[tuple[float, float]] = []  # of each open phase: its start, and the seconds nested in it
        self._seconds: dict[str, float] = {}
        self._moves: list[tuple[str, str, Callable[[], float]]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a new clock: a stage is sent to its process before it has measured anything."""
        return PhaseClock, ()

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by phase since the last `take`."""
        return self.apply_moves(self._seconds)

    def apply_moves(self, measured: Mapping[str, float]) -> Mapping[str, float]:
        """Return measured seconds, on whatever clock, after what `move` counts for other phases."""
        totals = dict(measured)
        for source, target, seconds in self._moves:
            moved = min(seconds(), totals.get(source, 0.0))
            totals[source] = totals.get(source, 0.0) - moved
            totals[target] = totals.get(target, 0.0) + moved
        return totals

    def begin(self) -> None:
        """Begin a phase, which may be nested in another one."""
        self._open.append((time.perf_counter(), 0.0))

    def end(self, name: str) -> None:
        """End the phase that began last."""
        began, nested = self._open.pop()
        taken = time.perf_counter() - began
        self._seconds[name] = self._seconds.get(name, 0.0) + taken - nested
        if self._open:
            start, inside = self._open[-1]
            self._open[-1] = start, inside + taken

    def move(self, source: str, target: str, seconds: Callable[[], float]) -> None:
        """Count seconds of one phase for another one, as of a wait during which another thread did the work.

        `seconds` is called when the clock is read, since a GPU knows them late.
        """
        self._moves.append((source, target, seconds))

    def take(self) -> Mapping[str, float]:
        """Return seconds by phase, and count from 0 again."""
        taken, self._seconds, self._moves = self.seconds, {}, []
        return taken


_calls = threading.local()


@contextmanager
def running(clock: PhaseClock) -> Iterator[None]:
    """Call a stage in this thread, so that what it calls finds its clock; see `running_clock`."""
    _calls.clock = clock
    try:
        yield
    finally:
        del _calls.clock


def running_clock() -> PhaseClock:
    """Return the clock of the stage that this thread calls; a new one outside of a call."""
    clock: PhaseClock = getattr(_calls, "clock", None) or PhaseClock()
    return clock


class ItemCounts(threading.local):
    """The items that calls went through, by kind, such as prompts or faces."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as new counts."""
        return ItemCounts, ()

    def add(self, kind: str, count: int) -> None:
        """Count items."""
        self._counts[kind] = self._counts.get(kind, 0) + count

    def take(self) -> dict[str, int]:
        """Return the counts since the last call."""
        taken, self._counts = self._counts, {}
        return taken
