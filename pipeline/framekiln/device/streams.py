"""Streams of work on a device, one for each thread, and marks in them; on the CPU both are the clock.

Work in a CUDA stream is done in order, and work of two streams at the same time. A stream that uses what another one
computes waits for a mark in it. Memory belongs to the stream that it was allocated in, so another stream that uses it
says so (`torch.Tensor.record_stream`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Mark:
    """A point in a stream: on the CPU, the time at which it was made."""

    def __init__(self) -> None:
        self._time = time.perf_counter()

    def wait(self) -> None:
        """Wait until the device has reached the mark."""

    def seconds_to(self, later: Mark) -> float:
        """Return the seconds to a later mark, made with `timed` as this one; waits for it."""
        return later._time - self._time


class Stream:
    """The CPU, on which work is done when it is launched."""

    @contextmanager
    def current(self) -> Iterator[None]:
        """Launch this thread's work in this stream during the block."""
        yield

    def mark(self, *, timed: bool = False) -> Mark:  # noqa: ARG002
        """Return a mark after all work that was launched so far; `timed` for one between which time is measured."""
        return Mark()

    def wait_for(self, mark: Mark) -> None:
        """Do what is launched from now on after a mark of another stream."""

    def uses(self, tensor: torch.Tensor) -> None:
        """Keep the memory of another stream's tensor until the work that was launched so far is done."""


class _CudaMark(Mark):
    def __init__(self, event: Any) -> None:
        self.event = event

    def wait(self) -> None:
        self.event.synchronize()

    def seconds_to(self, later: Mark) -> float:
        assert isinstance(later, _CudaMark)
        later.wait()
        return float(self.event.elapsed_time(later.event)) / 1000


class _CudaStream(Stream):
    def __init__(self, device: str) -> None:
        import torch

        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def current(self) -> Iterator[None]:
        import torch

        with torch.cuda.stream(self._stream):
            yield

    def mark(self, *, timed: bool = False) -> Mark:
        import torch

        # blocking: a thread that waits for it sleeps, where CUDA's default keeps a core busy
        event = torch.cuda.Event(enable_timing=timed, blocking=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return _CudaMark(event)

    def wait_for(self, mark: Mark) -> None:
        assert isinstance(mark, _CudaMark)
        self._stream.wait_event(mark.event)

    def uses(self, tensor: torch.Tensor) -> None:
        if tensor.is_cuda:
            tensor.record_stream(self._stream)


def keep_while_used(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that another thread made, such as one in a cache of few entries.

    If it is dropped there, its memory is kept until what this thread launches with it is done.
    """
    if tensor.is_cuda:
        import torch

        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor


_threads = threading.local()


def thread_stream(device: str) -> Stream:
    """Return this thread's own stream on a device."""
    streams: dict[str, Stream] = _threads.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = Stream() if device == "cpu" else _CudaStream(device)
    return streams[device]
