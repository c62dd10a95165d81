"""Phases timed by the GPU, between two CUDA events in its stream.

Kernels are launched asynchronously, so that the CPU's clock would measure launches only. Events are read after the
call. Its results have been downloaded by then, so that reading does not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from framekiln.contract.phases import PhaseClock

_MOST = 4096  # phases with unread events: a call on a whole video has one or two a frame


class Event(Protocol):
    """The methods of `torch.cuda.Event` that are used here."""

    def record(self) -> None:
        """Record the event in the current stream."""

    def synchronize(self) -> None:
        """Wait until the GPU has reached the event."""

    def elapsed_time(self, later: Event) -> float:
        """Return the milliseconds from this event to a later one."""


class EventClock(PhaseClock):
    """Clock between CUDA events, which are reused: creating one takes longer than recording it."""

    def __init__(self, event: Callable[[], Event]) -> None:
        super().__init__()
        self._event = event
        self._spare: list[Event] = []
        self._totals: dict[str, float] = {}  # of phases whose events were read
        self._begun: list[tuple[Event, int]] = []  # open phases: the event, and the number of ended phases by then
        self._spans: list[tuple[str, Event, Event, int, int]] = []  # name, events, depth, ended phases at its begin

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by phase since the last `take`; waits for the last event."""
        totals = dict(self._totals)
        lengths: list[float] = []
        for name, begin, end, depth, first in self._spans:
            end.synchronize()
            lengths.append(begin.elapsed_time(end) / 1000)
            children = (i for i in range(first, len(lengths) - 1) if self._spans[i][3] == depth + 1)
            totals[name] = totals.get(name, 0.0) + lengths[-1] - sum(lengths[i] for i in children)
        return self.apply_moves(totals)

    def begin(self) -> None:
        """See `PhaseClock`."""
        self._begun.append((self._stamp(), len(self._spans)))

    def end(self, name: str) -> None:
        """See `PhaseClock`."""
        begin, first = self._begun.pop()
        self._spans.append((name, begin, self._stamp(), len(self._begun), first))
        if len(self._spans) >= _MOST and not self._begun:
            self._settle()

    def take(self) -> Mapping[str, float]:
        """See `PhaseClock`."""
        self._settle()
        taken, self._totals = self._totals, {}
        return taken

    def _settle(self) -> None:
        self._totals, self._moves = dict(self.seconds), []
        self._spare += [event for span in self._spans for event in span[1:3]]
        self._spans = []

    def _stamp(self) -> Event:
        event = self._spare.pop() if self._spare else self._event()
        event.record()
        return event


def clock_of(device: str) -> PhaseClock:
    """Return a clock for stages on a device."""
    if device == "cpu":
        return PhaseClock()
    import torch

    if not torch.cuda.is_available():
        return PhaseClock()
    make: Any = partial(torch.cuda.Event, enable_timing=True)
    return EventClock(make)


def memory_gb(device: str, *, anew: bool = True) -> tuple[float, float, float] | None:
    """Return GB (1e9) allocated now, reserved now, and the peak of allocated memory, which `anew` resets.

    None on the CPU.
    """
    if device == "cpu":
        return None
    import torch

    cuda: Any = torch.cuda  # its functions for statistics have no types
    if not cuda.is_initialized():
        return None
    known = cuda.memory.memory_stats_as_nested_dict(device)
    allocated, reserved = known["allocated_bytes"]["all"], known["reserved_bytes"]["all"]
    if anew:
        cuda.reset_peak_memory_stats(device)
    return allocated["current"] / 1e9, reserved["current"] / 1e9, allocated["peak"] / 1e9
