"""Seconds and item counts by phase of a stage's calls; each thread has its own."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

PHASES = ("preprocess", "upload", "queue", "infer", "download", "postprocess")
"""upload: copies to the device. download: copies back. queue: waits while the device works for other packets."""

_MOST = 4096  # phases kept unread: a call on a whole video has one or two a frame


class PhaseClock(threading.local):
    """Seconds by phase, by the CPU's clock; on a GPU a worker sets one that reads the GPU's.

    Threads that call one stage share its clock and see only their own seconds.

    Time in a nested phase counts for that phase only, so that the sum of all phases is at most the length of the call.
    """

    def __init__(self) -> None:
        self._open: list[tuple[Any, int]] = []  # for each open phase: its begin, and the number of phases ended by then
        self._ended: list[tuple[str, Any, Any, int, int]] = []  # name, begin, end, depth, ended phases at its begin
        self._seconds: dict[str, float] = {}  # sums of the phases that were read
        self._moves: list[tuple[str, str, Callable[[], float]]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a new clock: a stage travels to its process before it has measured anything."""
        return PhaseClock, ()

    def stamp(self) -> Any:
        """Return a mark of this moment, for `between`."""
        return time.perf_counter()

    def between(self, begin: Any, end: Any) -> float:
        """Return the seconds between two marks."""
        return float(end - begin)

    def begin(self) -> None:
        """Begin a phase, which may be nested in another one."""
        self._open.append((self.stamp(), len(self._ended)))

    def end(self, name: str) -> None:
        """End the phase that began last."""
        begin, first = self._open.pop()
        self._ended.append((name, begin, self.stamp(), len(self._open), first))
        if len(self._ended) >= _MOST and not self._open:
            self.settle()

    def move(self, source: str, target: str, seconds: Callable[[], float]) -> None:
        """Move seconds from one phase to another, such as a wait during which another thread did the work.

        `seconds` is called when the clock is read, since a GPU reports them late.
        """
        self._moves.append((source, target, seconds))

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by phase since the last `take`."""
        self.settle()
        return self._seconds

    def take(self) -> Mapping[str, float]:
        """Return seconds by phase, and count from 0 again."""
        taken, self._seconds = self.seconds, {}
        return taken

    def settle(self) -> None:
        """Read the lengths of ended phases, then apply the moves. A GPU's clock waits for its phases to end."""
        lengths: list[float] = []
        totals = defaultdict(float, self._seconds)
        for name, begin, end, depth, first in self._ended:
            lengths.append(self.between(begin, end))
            inside = (i for i in range(first, len(lengths) - 1) if self._ended[i][3] == depth + 1)
            totals[name] += lengths[-1] - sum(lengths[i] for i in inside)
        for source, target, seconds in self._moves:
            moved = min(seconds(), totals[source])
            totals[source] -= moved
            totals[target] += moved
        self._seconds, self._ended, self._moves = dict(totals), [], []


_calls = threading.local()


@contextmanager
def running(clock: PhaseClock) -> Iterator[None]:
    """Call a stage in this thread; `running_clock` returns the stage's clock meanwhile."""
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
    """The number of items that calls processed, by kind, such as prompts or faces."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ItemCounts, ()

    def add(self, kind: str, count: int) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + count

    def take(self) -> dict[str, int]:
        """Return the counts since the last call."""
        taken, self._counts = self._counts, {}
        return taken
