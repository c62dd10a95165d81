"""One process's records: written while it works, with the time that it was idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import ClassVar

from framekiln.output.object_store import Store
from framekiln.profiling.events import worker_name
from framekiln.profiling.record_log import CALLS, Stream
from framekiln.profiling.records import HAND_ON, Record


class Recorder:
    """One process's records of a run. A store that belongs to no run keeps none."""

    _all: ClassVar[dict[tuple[str, str], Recorder]] = {}

    @classmethod
    def of(cls, store: Store) -> Recorder:
        """Return this process's recorder for a run: Ray uses one process for several groups of steps."""
        key = (store.root, store.run)
        if key not in cls._all:
            cls._all[key] = cls(store)
        return cls._all[key]

    def __init__(self, store: Store) -> None:
        self._run, self.worker = store.run, worker_name()
        self._stream = Stream(store, CALLS, self.worker) if store.run else None
        self._lock = threading.Lock()
        self._lanes: set[int] = set()  # of the packets that this process works on
        self._own = threading.local()  # the thread's lane
        self._idle_since: float | None = None  # None before the first packet

    def write(self, record: Record) -> None:
        """Keep a record; it is written to the output within seconds."""
        record.lane = getattr(self._own, "lane", 0)
        if self._stream is not None:
            self._stream.add(partial(record.line, self._run, self.worker))

    def flush(self) -> None:
        """Write all records to the output now."""
        if self._stream is not None:
            self._stream.flush()

    def idle(self) -> None:
        """Start the idle time, which lasts until the next packet."""
        self._idle_since = time.perf_counter()

    def waited(self) -> float:
        """Return the seconds of idle time so far; 0 while the process works on any packet."""
        with self._lock:
            is_idle = self._idle_since is not None and not self._lanes
            return time.perf_counter() - (self._idle_since or 0.0) if is_idle else 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Work on a packet that came from another process, until it has been handed on."""
        with self._lock:
            lane = self._own.lane = next(number for number in count() if number not in self._lanes)
            self._lanes.add(lane)
        try:
            yield
        finally:
            with self._lock:
                self._lanes.remove(lane)
                self.idle()

    @contextmanager
    def handing_on(self, step: str, unit: str, start: int, stop: int) -> Iterator[None]:
        """Record how long the block takes to hand a packet on; `step` is the last one that it has been through."""
        self.flush()  # once the last packet has left, this process may be ended
        started, begin = time.time(), time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begin
            record = Record(kind=HAND_ON, step=step, unit=unit, start=start, stop=stop, started=started)
            record.durations = {"seal": seconds}
            self.write(record)
            self.idle()
