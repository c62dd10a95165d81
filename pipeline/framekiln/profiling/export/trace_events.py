"""Trace events: a run's records on one timeline, as Perfetto and chrome://tracing open it.

The format is the "Trace Event Format" of the Chromium project, which allows events in any order. So records become
events as they are read. Events that need all records (names, flows, queues) come last.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.row_errors import DECODE
from framekiln.output.object_store import Store
from framekiln.profiling.record_log import BATCH_ROWS, CALLS, NODES, batches, began
from framekiln.profiling.records import CALL, DEATH, HAND_ON, INSIDE, PACKET, SET_UP

TraceEvent = dict[str, Any]
Depths = tuple[int, NDArray[np.float64], list[int]]


_PIPELINE = 1  # the process row of events that belong to no node
_TOUCHING_US = 5.0  # us; a smaller overlap is ignored: records are rounded to 1 us, and a call has two clocks
_ORDER = [("started", "ascending"), ("seconds", "descending"), ("kind", "descending")]  # a packet before its calls
_GREY = {"cname": "grey"}
_NODE_COUNTERS = {"cpu_percent": "CPU %", "memory_gb": "memory GB", "store_gb": "object store GB"}
_GPU_COUNTERS = {"use_percent": "use %", "memory_gb": "memory GB", "power_w": "power W"}
_VRAM = {"allocated": "vram_allocated_gb", "reserved": "vram_reserved_gb", "peak": "vram_peak_gb"}


class _PacketFlows:
    """All packets' ways through their steps. Steps, workers and units are numbers; times have any one unit.

    A packet's next step is known only from a later record. So all flows of a run are in memory at once.
    """

    def __init__(self) -> None:
        self._units: dict[str, int] = defaultdict(count().__next__)
        self._passages = array("d")  # six values of each passage: unit, start, step, worker, began, ended

    def add(self, unit: str, *passage: float) -> None:
        """Add a packet's passage through a step: start, step, worker, began, ended."""
        self._passages.extend((self._units[unit], *passage))

    def hops(self) -> Iterator[tuple[str, str, int, float]]:
        """Yield each packet's arrivals at its steps in order of time; none for packets of a single step.

        An arrival is `unit:start`, the phase (s: first step, f: last one, t: in between), worker and moment.
        """
        rows, same = self._sort(list(self._units))
        names = list(self._units)
        for row, before, after in zip(rows, np.append(False, same), np.append(same, False), strict=False):
            if before or after:
                phase = "s" if not before else "t" if after else "f"
                yield f"{names[int(row[0])]}:{int(row[1])}", phase, int(row[3]), float(row[4])

    def queues(self) -> Iterator[Depths]:
        """Yield each step that packets waited for, with moments and the queue length from each moment on.

        A packet waits from the end of its previous step until it is begun. Files of the second pass do not count.
        """
        rows, same = self._sort([name for name in self._units if not name.endswith(".parquet")])
        now, after = rows[:-1], rows[1:]
        passed = same & (now[:, 2] != after[:, 2])
        arrived = np.maximum(after[passed, 4], now[passed, 5])
        waiting = np.column_stack([after[passed, 2], now[passed, 5], arrived])  # step, since, until
        for step in np.unique(waiting[:, 0]):
            ends = waiting[waiting[:, 0] == step, 1:].T.ravel()  # since, then until
            moments, where = np.unique(ends, return_inverse=True)
            changes = np.bincount(where, np.repeat([1, -1], len(ends) // 2), len(moments))
            yield int(step), moments, np.cumsum(changes).astype(int).tolist()

    def _sort(self, units: Collection[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the passages of units by packet and time (n 6), and a mask (n-1): the next is of the same packet."""
        rows = np.asarray(self._passages).reshape(-1, 6)
        rows = rows[np.isin(rows[:, 0], [self._units[name] for name in units])]
        rows = rows[np.lexsort(rows[:, [4, 1, 0]].T)]
        return rows, (rows[1:, :2] == rows[:-1, :2]).all(axis=1)


@dataclass(kw_only=True, slots=True)
class _Worker:
    name: str
    pid: int
    tid: int
    steps: set[str] = field(default_factory=set)
    free: float = 0.0  # end of its last packet, hand-on included
    packet: tuple[float, float] = (0.0, 0.0)  # start of its last packet, and end of the calls in it
    called: float = 0.0  # end of its last call


def events(store: Store, run: str, rows: int = BATCH_ROWS) -> Iterator[TraceEvent]:
    """Yield every event of a run's trace; times are microseconds since its first record.

    So many `rows` are in memory at once; each packet and step takes 48 bytes more. Raises GoneError: the run ended
    while its records were being read.
    """
    timeline = _Timeline(began(store, run, (CALLS, NODES)) or 0.0)
    for table in batches(store, CALLS, run, rows=rows):
        for record in table.filter(pc.not_equal(table["kind"], DEATH)).sort_by(_ORDER).to_pylist():
            yield from timeline.slices(record)
    for table in batches(store, NODES, run, rows=rows):
        for sample in table.to_pylist():
            yield from timeline.counters(sample)
    yield from timeline.flows()
    yield from timeline.queues()
    yield from timeline.names()


class _Timeline:
    def __init__(self, first: float) -> None:
        self._first = first
        self._workers: dict[str, _Worker] = {}
        self._nodes: dict[str, int] = defaultdict(count(_PIPELINE + 1).__next__)
        self._steps: dict[str, float] = {}  # their first starts
        self._numbers: dict[str, int] = defaultdict(count().__next__)  # of steps
        self._flows = _PacketFlows()

    def slices(self, record: Mapping[str, Any]) -> Iterator[TraceEvent]:
        name = f"{record['worker']} #{record['lane']}" if record["lane"] else record["worker"]
        if name not in self._workers:
            self._workers[name] = _Worker(name=name, pid=self._nodes[record["node"]], tid=len(self._workers) + 1)
        self._workers[name].steps.add(record["step"])
        worker = self._workers[name]
        start, kind = self._to_us(record["started"]), record["kind"]
        if kind == CALL:
            yield from self._draw_call(worker, record, start)
            return
        if 0 < worker.free - start < _TOUCHING_US:
            start = worker.free
        end = self._to_us(record["started"] + record["seconds"] + (record["seal"] if kind == HAND_ON else 0.0))
        if kind == PACKET:
            yield from self._draw_packet(worker, record, start, end)
        elif kind in (HAND_ON, SET_UP):
            yield _draw_slice(worker, f"{kind} {record['step']}", kind, start, end, _describe(record))
        worker.free = max(worker.free, end)

    def _draw_packet(
        self, worker: _Worker, record: Mapping[str, Any], start: float, end: float
    ) -> Iterator[TraceEvent]:
        """Yield the wait for a packet, its opening, the packet, and its phases outside calls.

        Decoding is at the packet's start, writing at its end.
        """
        opened = max(worker.free, start - 1e6 * record["fetch"])
        waited = max(worker.free, opened - 1e6 * record["wait"])
        if record["wait"] and waited < opened:
            yield _draw_slice(worker, "wait", "wait", waited, opened, {"seconds": record["wait"]}) | _GREY
        if record["fetch"] and opened < start:
            yield _draw_slice(worker, "fetch", "fetch", opened, start, {"seconds": record["fetch"]})
        step, unit = record["step"], record["unit"] or ""
        self._steps[step] = min(self._steps.get(step, start), start)
        self._flows.add(unit, record["start"], self._numbers[step], worker.tid, start, end)
        yield _draw_slice(worker, step, PACKET, start, end, _describe(record))
        written = max(start, end - 1e6 * record["write"])
        if 0 < worker.called - written < _TOUCHING_US:
            written = min(worker.called, end)
        worker.packet = (start, written)
        if step == DECODE and record["decode"]:
            yield _draw_phase(worker, "decode", start, min(written, start + 1e6 * record["decode"]), record["decode"])
        if record["write"]:
            yield _draw_phase(worker, "write", written, end, record["write"])

    def _draw_call(self, worker: _Worker, record: Mapping[str, Any], start: float) -> Iterator[TraceEvent]:
        """Yield a call and its phases end to end; phases are shortened if a GPU's clock gives a longer sum."""
        end = start + 1e6 * record["seconds"]
        begin, until = worker.packet
        if begin - _TOUCHING_US < start < until:  # its packet was read before
            start, end = max(start, begin), min(end, until) if end - until < _TOUCHING_US else end
        if 0 < worker.called - start < _TOUCHING_US:
            start = worker.called
        end = max(start, end)
        worker.called = end
        yield _draw_slice(worker, f"{record['step']} call", CALL, start, end, _describe(record))
        known = [(name, record[name]) for name in INSIDE if record[name]]  # records hold lengths, not moments
        scale = min(1e6, (end - start) / sum(seconds for _, seconds in known)) if known else 0.0
        at = start
        for name, seconds in known:
            yield _draw_phase(worker, name, at, min(end, at + scale * seconds), seconds)
            at += scale * seconds
        memory = {what: record[column] for what, column in _VRAM.items() if record[column] is not None}
        if memory:
            yield _draw_counter(worker.pid, f"VRAM GB {record['worker']}", end, memory)

    def counters(self, sample: Mapping[str, Any]) -> Iterator[TraceEvent]:
        pid, at = self._nodes[sample["node"]], self._to_us(sample["time"])
        values = [(name, sample[column]) for column, name in _NODE_COUNTERS.items()]
        for number, gpu in enumerate(sample["gpus"] or ()):
            values += [(f"GPU {number} {name}", gpu[column]) for column, name in _GPU_COUNTERS.items()]
        yield from (_draw_counter(pid, name, at, {"value": value}) for name, value in values if value is not None)

    def flows(self) -> Iterator[TraceEvent]:
        threads = {worker.tid: worker for worker in self._workers.values()}
        for name, phase, tid, moment in self._flows.hops():
            place = {"ts": round(moment, 3), "pid": threads[tid].pid, "tid": tid}
            yield {"name": "packet", "cat": "flow", "ph": phase, "id": name, "bp": "e"} | place

    def queues(self) -> Iterator[TraceEvent]:
        names = list(self._numbers)
        for step, moments, depths in self._flows.queues():
            for moment, depth in zip(moments.tolist(), depths, strict=True):
                yield _draw_counter(_PIPELINE, f"waiting for {names[step]}", moment, {"packets": depth})

    def names(self) -> Iterator[TraceEvent]:
        """Yield the names of rows: the pipeline, then nodes, each with its processes in the order of their steps."""
        for place, (name, pid) in enumerate((("pipeline", _PIPELINE), *self._nodes.items())):
            yield _draw_name("process_name", pid, 0, {"name": name})
            yield _draw_name("process_sort_index", pid, 0, {"sort_index": place})
        every = {step for worker in self._workers.values() for step in worker.steps}
        first = {step: (self._steps.get(step, math.inf), step) for step in every}  # steps without a packet come last
        rows = [(sorted(worker.steps, key=lambda step: first[step]), worker) for worker in self._workers.values()]
        rows.sort(key=lambda row: ([first[step] for step in row[0]], row[1].name))
        for place, (steps, worker) in enumerate(rows):
            yield _draw_name("thread_name", worker.pid, worker.tid, {"name": f"{'+'.join(steps)} ({worker.name})"})
            yield _draw_name("thread_sort_index", worker.pid, worker.tid, {"sort_index": place})

    def _to_us(self, seconds: float) -> float:
        return 1e6 * (seconds - self._first)


def _draw_slice(
    worker: _Worker, name: str, category: str, start: float, end: float, args: Mapping[str, Any]
) -> TraceEvent:
    begin = round(start, 3)  # whole nanoseconds at both ends: Perfetto drops slices that overlap by one
    times = {"ts": begin, "dur": round(max(0.0, round(end, 3) - begin), 3)}
    return {"name": name, "cat": category, "ph": "X", "pid": worker.pid, "tid": worker.tid, "args": args} | times


def _draw_phase(worker: _Worker, name: str, start: float, end: float, seconds: float) -> TraceEvent:
    return _draw_slice(worker, name, "phase", start, end, {"seconds": seconds})


def _draw_counter(pid: int, name: str, at: float, values: Mapping[str, float]) -> TraceEvent:
    return {"name": name, "ph": "C", "ts": round(at, 3), "pid": pid, "args": values}


def _draw_name(name: str, pid: int, tid: int, args: Mapping[str, Any]) -> TraceEvent:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _describe(record: Mapping[str, Any]) -> dict[str, Any]:
    items: Iterable[tuple[str, int]] = record["items"] or ()
    facts = {name: record[name] for name in ("unit", "start", "stop") if record["unit"]}
    more = {name: record[name] for name in ("retries", "device") if record[name]}
    return facts | {"rows": record["rows"], "cost": record["cost"]} | more | ({"items": dict(items)} if items else {})
