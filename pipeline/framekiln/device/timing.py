"""Phases timed by the GPU, between two CUDA events in its stream.

Kernels are launched asynchronously, so that the CPU's clock would measure launches only. Events are read after the
call. Its results have been downloaded by then, so that reading does not wait.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from framekiln.contract.phases import PhaseClock
from framekiln.device.lazy import torch


class EventClock(PhaseClock):
    """Clock between CUDA events, which are reused: creating one takes longer than recording it."""

    def __init__(self, event: Callable[[], Any]) -> None:
        super().__init__()
        self._event, self._spare = event, list[Any]()

    def stamp(self) -> Any:
        """Record an event in the current stream."""
        event = self._spare.pop() if self._spare else self._event()
        event.record()
        return event

    def between(self, begin: Any, end: Any) -> float:
        """Wait until the GPU has reached the later event, and return the seconds."""
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    def settle(self) -> None:
        """See `PhaseClock`."""
        events = [event for ended in self._ended for event in ended[1:3]]
        super().settle()
        self._spare += events


def clock_of(device: str) -> PhaseClock:
    """Return a clock for stages on a device."""
    if device == "cpu":
        return PhaseClock()
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
    cuda: Any = torch.cuda  # its functions for statistics have no types
    if not cuda.is_initialized():
        return None
    known = cuda.memory.memory_stats_as_nested_dict(device)
    allocated, reserved = known["allocated_bytes"]["all"], known["reserved_bytes"]["all"]
    if anew:
        cuda.reset_peak_memory_stats(device)
    return allocated["current"] / 1e9, reserved["current"] / 1e9, allocated["peak"] / 1e9
