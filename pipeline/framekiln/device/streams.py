"""Streams of a device, marks in them, and the watch over a GPU that does not reach a mark.

Each thread launches its work in a stream of its own. Work in one CUDA stream is done in order; two streams work at the
same time. A stream waits for a mark in another stream before it uses that stream's results. Memory belongs to the
stream that allocated it, so another stream that uses it registers this (`torch.Tensor.record_stream`). On the CPU a
stream does nothing, and a mark is a time.
"""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any

from framekiln.device.lazy import torch
from framekiln.device.watchdog import GPU_STALL_S, within

_ASK_S = 10.0  # s between two questions to a GPU, far below its timeout


class Mark:
    """A point in a stream: on the CPU, the time at which it was made."""

    def __init__(self, event: Any = None) -> None:
        self.event, self._time = event, time.perf_counter()

    def wait(self) -> None:
        """Wait until the device has reached the mark."""
        if self.event is not None:
            self.event.synchronize()

    def seconds_to(self, later: Mark) -> float:
        """Return the seconds to a later mark; waits for it. Both were made with `timed`."""
        later.wait()
        return later._time - self._time if self.event is None else float(self.event.elapsed_time(later.event)) / 1000


class DeviceStream:
    """A stream of a GPU, or the CPU, where work is done as it is launched."""

    def __init__(self, device: str, *, is_shared: bool = False) -> None:
        """Make a stream, or take the one of all threads without their own."""
        self._stream: Any = None
        if device != "cpu":
            make = torch.cuda.default_stream if is_shared else torch.cuda.Stream
            self._stream = make(device)

    def current(self) -> AbstractContextManager[Any]:
        """Launch this thread's work in this stream during the block."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def mark(self, *, timed: bool = False) -> Mark:
        """Return a mark after all work launched so far; with `timed`, time can be measured from and to it."""
        if self._stream is None:
            return Mark()
        # blocking: a waiting thread sleeps; CUDA's default keeps a core busy
        event = torch.cuda.Event(enable_timing=timed, blocking=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return Mark(event)

    def wait_for(self, mark: Mark) -> None:
        """Make work launched from now on wait for a mark of another stream."""
        if self._stream is not None:
            self._stream.wait_event(mark.event)

    def uses(self, tensor: torch.Tensor) -> None:
        """Keep the memory of another stream's tensor until the work launched so far is done."""
        if self._stream is not None and tensor.is_cuda:
            tensor.record_stream(self._stream)


def keep_while_used(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that another thread made, such as one in a small cache.

    If the cache drops it, its memory is kept until this thread's work with it is done.
    """
    if tensor.is_cuda:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor


_threads = threading.local()
_streams: list[DeviceStream] = []  # all threads' own


def thread_stream(device: str) -> DeviceStream:
    """Return this thread's own stream on a device."""
    streams: dict[str, DeviceStream] = _threads.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = DeviceStream(device)
        _streams.append(streams[device])
    return streams[device]


@cache
def watch_gpu(device: str) -> None:
    """End this process once its GPU takes longer than `GPU_STALL_S` for work that is launched.

    A thread asks from now on: it marks all threads' streams and waits for the marks. Time on the host does not count,
    such as loading weights or compiling.
    """
    threading.Thread(target=_ask_for_ever, args=(device,), daemon=True, name="GPU watch").start()


def _ask_for_ever(device: str) -> None:
    with suppress(Exception):  # a lost GPU: calls raise it too
        while True:
            with within(GPU_STALL_S):
                shared = DeviceStream(device, is_shared=True)
                for mark in [stream.mark() for stream in (shared, *_streams)]:
                    mark.wait()
            time.sleep(_ASK_S)
