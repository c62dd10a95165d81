"""One process's records: each step's work on a packet, whole and by call, and idle time.

The live event for the coordinator is derived from this record, so the stored profile and the progress view agree.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import partial
from itertools import count
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framekiln.contract.packet import HALO
from framekiln.contract.row_errors import PASSED_OVER, Failure, reasons
from framekiln.contract.stage import Stage
from framekiln.device import memory_gb, take_failures
from framekiln.output.object_store import Store
from framekiln.profiling.record_log import CALLS, Stream
from framekiln.profiling.records import CALL, DEATH, HAND_ON, PACKET, Death, Record, StepEvent, Work, now, worker_name

_NO_WAIT_S = 1e-3  # s; without a wait, a call begins within microseconds


class Recorder:
    """One process's records of a run. A store without a run keeps none."""

    _all: ClassVar[dict[tuple[str, str], Recorder]] = {}

    @classmethod
    def of(cls, store: Store) -> Recorder:
        """Return this process's recorder for a run: Ray uses one process for several groups."""
        key = (store.root, store.run)
        if key not in cls._all:
            cls._all[key] = cls(store)
        return cls._all[key]

    @classmethod
    def end(cls) -> None:
        """Write all records of this process now, before it ends without Python's own shutdown."""
        for stream in (recorder._stream for recorder in cls._all.values()):
            if stream is not None:
                stream.flush(now=True)

    def __init__(self, store: Store) -> None:
        self._run, self.worker = store.run, worker_name()
        self._stream = Stream(store, CALLS, self.worker) if store.run else None
        self._lock = threading.Lock()
        self._lanes: set[int] = set()  # lanes of the packets in work
        self._own = threading.local()  # number of the thread's lane
        self._idle_since: float | None = None  # None before the first packet

    def write(self, record: Record) -> None:
        """Keep a record; it is written to the output within seconds."""
        record.lane = getattr(self._own, "lane", 0)
        if self._stream is not None:
            self._stream.add(partial(record.line, self._run, self.worker))

    def bury(self, death: Death) -> None:
        """Keep and write the record of another process's death."""
        if self._stream is not None:
            record = Record(kind=DEATH, step="", started=death.time)
            self._stream.add(partial(record.line, self._run, death.worker))
            self._stream.flush(now=True)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def idle(self) -> None:
        """Start the idle time, which ends with the next packet."""
        self._idle_since = time.perf_counter()

    def waited(self) -> float:
        """Return the idle seconds so far; 0 while the process works on a packet."""
        with self._lock:
            is_idle = self._idle_since is not None and not self._lanes
            return time.perf_counter() - (self._idle_since or 0.0) if is_idle else 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Work on a packet from another process, until it has been handed on."""
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
        """Record how long the block takes to hand a packet on; `step`: the last step before."""
        self.flush()  # after the last packet has left, this process may be ended
        started, begin = now(), time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begin
            record = Record(kind=HAND_ON, step=step, unit=unit, start=start, stop=stop, started=started)
            record.durations = {"seal": seconds}
            self.write(record)
            self.idle()


class StepWork:
    """The calls of one step on a packet, a file or a run, and their sums."""

    def __init__(
        self, record: Record | None = None, recorder: Recorder | None = None, rows: pa.Table | None = None
    ) -> None:
        """Begin; without a recorder, nothing is recorded.

        `record`: the whole record, with step, device, unit, first row and start. `rows`: the packet's rows with halo;
        None in the second pass, where calls have no place in a unit.
        """
        self._record = record or Record(kind=PACKET, step="", started=now())
        self._recorder = recorder
        self.phases: dict[str, float] = {}
        self.calls: list[float] = []  # seconds of each call that returned
        self.memory: tuple[float, float, float] | None = None  # GB: allocated, reserved, peak
        self._items = Counter[str]()
        self._retries = self._call_retries = 0
        self._place: NDArray[np.int64] | None = None  # each row's number in the packet without halo
        if rows is not None:
            own = ~rows[HALO].to_numpy()
            self._place, self._pixels = np.cumsum(own) - 1, pixels(rows)
            self._record.cost = int(self._pixels[own].sum())

    @property
    def is_retried(self) -> bool:
        return self._retries > 0

    def retry(self) -> None:
        """Count a retry after memory ran out."""
        self._call_retries += 1
        self._retries += 1

    def waited(self, seconds: float) -> None:
        """Count a wait for other packets' calls as `queue`."""
        if seconds > _NO_WAIT_S:
            self.phases["queue"] = self.phases.get("queue", 0.0) + seconds

    def call_failed(self, stage: Stage) -> None:
        """Discard the phases and items of a call that raised: they are incomplete."""
        with suppress(Exception):  # reading the clock of a lost GPU raises too
            stage.clock.take()
        stage.item_counts.take()

    def call_returned(self, stage: Stage, own: NDArray[np.int64], device: str, started: float, seconds: float) -> None:
        """Record a call that returned; `own`: the packet's rows that it computed, without halo.

        A stage without declared phases gets one: all its time counts as the model's.
        """
        phases, items, memory = stage.clock.take() or {"infer": seconds}, stage.item_counts.take(), memory_gb(device)
        for name, value in phases.items():
            self.phases[name] = self.phases.get(name, 0.0) + value
        self._items.update(items)
        if memory is not None:
            self.memory = (*memory[:2], max(memory[2], self.memory[2] if self.memory else 0.0))
        self.calls.append(seconds)
        if self._recorder is not None and len(own):
            call = Record(kind=CALL, step=self._record.step, started=started, seconds=seconds, device=device)
            call.unit, call.rows, call.retries = self._record.unit, len(own), self._call_retries
            call.start, call.stop, call.cost = 0, len(own), 0
            if self._place is not None:  # counts the unit's rows, and their pixels at full size
                first, last = (self._record.start + int(self._place[own[end]]) for end in (0, -1))
                call.start, call.stop, call.cost = first, last + 1, int(self._pixels[own].sum())
            call.items, call.durations, call.memory = items, phases, memory
            self._recorder.write(call)
        self._call_retries = 0

    def finish(
        self,
        *,
        rows: int = 0,
        failures: Sequence[Failure] = (),
        around: Mapping[str, float] | None = None,
        share: float = 0.0,
    ) -> StepEvent:
        """Write the whole record, and return the live event derived from it.

        `around`: seconds outside of calls (wait, fetch, decode, write). `share`: see `StepEvent`.
        """
        record, around = self._record, around or {}
        failures = [item for item in failures if item.kind != PASSED_OVER]
        record.seconds, record.rows = now() - record.started, rows
        record.durations, record.items = {**self.phases, **around}, self._items
        record.memory, record.retries = self.memory, self._retries
        assert self._recorder is not None
        self._recorder.write(record)
        note, code = "", "FK-COMPILE-FAILED"
        if uncompiled := take_failures():
            note = f"The model of {record.step} runs uncompiled, which is slower: {uncompiled[0]}. Repair compilation, "
            note += f"or set {record.step}.compile=false. [{code}]"
        return StepEvent(
            **{item.name: getattr(record, item.name) for item in fields(Work)},
            worker=self._recorder.worker,
            failures=len(failures),
            share=share,
            reasons=reasons(failures),
            phases=self.phases,
            around=around,
            calls=tuple(self.calls),
            note=note,
        )


def pixels(rows: pa.Table) -> NDArray[np.int64]:
    """Return each row's number of pixels at full size; 0 if unknown."""
    height, width = (rows[name].fill_null(0).to_numpy().astype(np.int64) for name in ("height", "width"))
    result: NDArray[np.int64] = height * width
    return result
