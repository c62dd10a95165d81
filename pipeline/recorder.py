"""What a worker writes down while it works: its calls as they return, its packets, and how long it stood idle."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.device import memory_gb
from pipeline.journal import worker_name
from pipeline.packet import HALO
from pipeline.stage import Stage
from pipeline.storage import Store
from pipeline.telemetry.records import HAND_ON, Record
from pipeline.telemetry.streams import CALLS, Stream

Memory = tuple[float, float, float]


class Recorder:
    """One process's records; it keeps none where the store belongs to no run."""

    _all: ClassVar[dict[tuple[str, str], Recorder]] = {}

    @classmethod
    def of(cls, store: Store) -> Recorder:
        """This process's own for a run: Ray uses a process for several groups of steps."""
        key = (store.root, store.run)
        if key not in cls._all:
            cls._all[key] = cls(store)
        return cls._all[key]

    def __init__(self, store: Store) -> None:
        self._run, self._worker = store.run, worker_name()
        self._stream = Stream(store, CALLS, self._worker) if store.run else None
        self._free: float | None = None  # when it had nothing left to do; None before that

    def write(self, record: Record) -> None:
        """Keep one."""
        if self._stream is not None:
            self._stream.add(partial(record.line, self._run, self._worker))

    def flush(self) -> None:
        """Have everything outside of this process."""
        if self._stream is not None:
            self._stream.flush()

    def free(self) -> None:
        """There is nothing to do from now on, until the next packet."""
        self._free = time.perf_counter()

    def waited(self) -> float:
        """Seconds since then."""
        return time.perf_counter() - self._free if self._free is not None else 0.0

    @contextmanager
    def handing_on(self, step: str, unit: str, start: int, stop: int) -> Iterator[None]:
        """A packet leaves inside; the last step that it has been through is named."""
        self.flush()  # once the last packet has left, this process may be ended
        started, begin = time.time(), time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begin
            told = Record(kind=HAND_ON, step=step, unit=unit, start=start, stop=stop, started=started)
            told.durations = {"seal": seconds}
            self.write(told)
            self.free()


class Notes:
    """What one step's calls on one packet took; each call is written down as it returns."""

    def __init__(
        self, recorder: Recorder | None = None, call: Record | None = None, rows: pa.Table | None = None
    ) -> None:
        """Begin.

        Args:
            recorder: takes records of calls; None for none.
            call: what they have in common, and the packet's own place.
            rows: the packet's.
        """
        self._recorder, self._call = recorder, call
        self.phases: dict[str, float] = {}
        self.calls: list[float] = []  # seconds of each that returned
        self.items: dict[str, int] = {}
        self.memory: Memory | None = None
        self.retries = self._again = 0
        self._place: NDArray[np.int64] | None = None
        self.cost = 0  # pixels of the packet's own rows
        if rows is not None:
            own = ~rows[HALO].to_numpy()
            self._place, self._pixels = np.cumsum(own) - 1, pixels(rows)
            self.cost = int(self._pixels[own].sum())

    def again(self) -> None:
        """Memory ran out; the next call is made again."""
        self._again += 1
        self.retries += 1

    def dropped(self, stage: Stage) -> None:
        """A call raised: where its time went is not known."""
        with suppress(Exception):  # reading the clock of a GPU that is lost raises too
            stage.clock.take()
        stage.items.clear()

    def taken(self, stage: Stage, device: str) -> tuple[Mapping[str, float], Mapping[str, int], Memory | None]:
        """Phases (s), items and memory of the stage's last call, which are added up here."""
        phases, items, memory = stage.clock.take(), stage.items, memory_gb(device)
        stage.items = {}
        for name, seconds in phases.items():
            self.phases[name] = self.phases.get(name, 0.0) + seconds
        for name, count in items.items():
            self.items[name] = self.items.get(name, 0) + count
        if memory is not None:
            self.memory = (*memory[:2], max(memory[2], self.memory[2] if self.memory else 0.0))
        return phases, items, memory

    def returned(self, stage: Stage, own: NDArray[np.int64], device: str, started: float, seconds: float) -> None:
        """A call returned.

        Args:
            stage: what was called.
            own: the packet's rows that it answered for.
            device: where.
            started: seconds since the epoch.
            seconds: how long it took.
        """
        phases, items, memory = self.taken(stage, device)
        self.calls.append(seconds)
        if self._recorder is not None and self._call is not None and self._place is not None and len(own):
            common, first = self._call, self._call.start
            self._recorder.write(
                Record(
                    kind="call",
                    step=common.step,
                    device=device,
                    unit=common.unit,
                    start=first + int(self._place[own[0]]),
                    stop=first + int(self._place[own[-1]]) + 1,
                    rows=len(own),
                    cost=int(self._pixels[own].sum()),
                    items=items,
                    started=started,
                    seconds=seconds,
                    durations=phases,
                    memory=memory,
                    retries=self._again,
                )
            )
        self._again = 0


def pixels(rows: pa.Table) -> NDArray[np.int64]:
    """Of each row, at full size."""
    height, width = (rows[name].to_numpy().astype(np.int64) for name in ("height", "width"))
    result: NDArray[np.int64] = height * width
    return result
