"""Streams of work on a device, one for each thread, and marks in them; on the CPU both are the clock.

Work in a CUDA stream is done in order, and work of two streams at the same time. A stream that uses what another one
computes waits for a mark in it. Memory belongs to the stream that it was allocated in, so another stream that uses it
says so (`torch.Tensor.record_stream`).
"""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from framekiln.device.lazy import torch


class Mark:
    """A point in a stream: on the CPU, the time at which it was made."""

    def __init__(self, event: Any = None) -> None:
        self.event, self._time = event, time.perf_counter()

    def wait(self) -> None:
        """Wait until the device has reached the mark."""
        if self.event is not None:
            self.event.synchronize()

    def seconds_to(self, later: Mark) -> float:
        """Return the seconds to a later mark, made with `timed` as this one; waits for it."""
        later.wait()
        return later._time - self._time if self.event is None else float(self.event.elapsed_time(later.event)) / 1000


class DeviceStream:
    """A stream of a GPU, or the CPU, on which work is done when it is launched."""

    def __init__(self, device: str) -> None:
        self._stream: Any = None
        if device != "cpu":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def current(self) -> AbstractContextManager[Any]:
        """Launch this thread's work in this stream during the block."""
        if self._stream is None:
            return nullcontext()
        return torch.cuda.stream(self._stream)

    def mark(self, *, timed: bool = False) -> Mark:
        """Return a mark after all work that was launched so far; `timed` for one between which time is measured."""
        if self._stream is None:
            return Mark()
        # blocking: a thread that waits for it sleeps, where CUDA's default keeps a core busy
        event = torch.cuda.Event(enable_timing=timed, blocking=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return Mark(event)

    def wait_for(self, mark: Mark) -> None:
        """Do what is launched from now on after a mark of another stream."""
        if self._stream is not None:
            self._stream.wait_event(mark.event)

    def uses(self, tensor: torch.Tensor) -> None:
        """Keep the memory of another stream's tensor until the work that was launched so far is done."""
        if self._stream is not None and tensor.is_cuda:
            tensor.record_stream(self._stream)


def keep_while_used(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that another thread made, such as one in a cache of few entries.

    If it is dropped there, its memory is kept until what this thread launches with it is done.
    """
    if tensor.is_cuda:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor


_threads = threading.local()


def thread_stream(device: str) -> DeviceStream:
    """Return this thread's own stream on a device."""
    streams: dict[str, DeviceStream] = _threads.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = DeviceStream(device)
    return streams[device]
