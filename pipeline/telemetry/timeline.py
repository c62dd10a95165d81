"""A run's records on one time line, in the trace event format that Perfetto and chrome://tracing open.

Format: "Trace Event Format" of the Chromium project. Events come in any order there, so records become events as they
are read, and what needs all of them (names, flows, queues) follows at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.failure import DECODE
from pipeline.storage import Store
from pipeline.telemetry import nodes
from pipeline.telemetry.passages import Passages
from pipeline.telemetry.records import CALL, HAND_ON, PACKET, SET_UP, to_table
from pipeline.telemetry.streams import BATCH_ROWS, CALLS, NODES, batches, goes_on

Event = dict[str, Any]

PHASES = ("decode", "preprocess", "upload", "infer", "download", "postprocess", "write")
"""In the order in which they are drawn: how long each took is known, when it was is not."""

_PIPELINE = 1  # the process row of what belongs to no machine
_TOUCHING_US = 5.0  # records are rounded to 1 us, and a call has two clocks: what overlaps by less only touches
_ORDER = [("started", "ascending"), ("seconds", "descending"), ("kind", "descending")]  # a packet before its calls
_GREY = {"cname": "grey"}
_MACHINE = {"cpu_percent": "CPU %", "memory_gb": "memory GB", "store_gb": "object store GB"}
_CARD = {"use_percent": "use %", "memory_gb": "memory GB", "power_w": "power W"}
_VRAM = {"allocated": "vram_allocated_gb", "reserved": "vram_reserved_gb", "peak": "vram_peak_gb"}


@dataclass(kw_only=True, slots=True)
class _Worker:
    """A thread row of the trace."""

    name: str
    pid: int
    tid: int
    steps: set[str] = field(default_factory=set)
    free: float = 0.0  # when it had handed on its last packet
    packet: tuple[float, float] = (0.0, 0.0)  # from when it is drawn, and until when its calls are
    called: float = 0.0  # when its last call had returned


def events(store: Store, run: str, rows: int = BATCH_ROWS) -> Iterator[Event]:
    """Every event of a run's trace; times are microseconds since its first record.

    Args:
        store: the output.
        run: which of its runs.
        rows: records in memory at once. Besides them some 40 bytes are kept for each packet and step.

    Raises:
        GoneError: the run ended while it was being read.
    """
    line = _Timeline(_first(store, run, rows))
    for table in batches(store, CALLS, run, to_table, rows=rows):
        for record in table.sort_by(_ORDER).to_pylist():
            yield from line.drawn(record)
    for table in batches(store, NODES, run, nodes.to_table, rows=rows):
        for sample in table.to_pylist():
            yield from line.sampled(sample)
    yield from line.flows()
    yield from line.queues(going_on=goes_on(store, run))
    yield from line.names()


def _first(store: Store, run: str, rows: int) -> float:
    """When the first record of either kind was made, in seconds since the epoch; 0 where there is none."""
    kinds: tuple[tuple[str, Callable[..., pa.Table], str], ...] = (
        (CALLS, to_table, "started"),
        (NODES, nodes.to_table, "time"),
    )
    found = (
        (table, column)
        for kind, make, column in kinds
        for table in batches(store, kind, run, make, rows=rows, columns=(column,))
    )
    return min((float(pc.min(table[column]).as_py()) for table, column in found if table.num_rows), default=0.0)


class _Timeline:
    def __init__(self, first: float) -> None:
        self._first = first
        self._workers: dict[str, _Worker] = {}
        self._nodes: dict[str, int] = {}
        self._steps: dict[str, tuple[float, bool]] = {}  # when it first began, and whether it is of the second pass
        self._numbers: dict[str, int] = {}
        self._passages = Passages()

    def drawn(self, record: Mapping[str, Any]) -> Iterator[Event]:
        """One record's slices and counters."""
        worker = self._worker(record)
        start, kind = self._at(record["started"]), record["kind"]
        if kind == CALL:
            yield from self._call(worker, record, start)
            return
        if 0 < worker.free - start < _TOUCHING_US:
            start = worker.free
        end = self._at(record["started"] + record["seconds"] + (record["seal"] if kind == HAND_ON else 0.0))
        if kind == PACKET:
            yield from self._arrival(worker, record, start)
            yield from self._packet(worker, record, start, end)
        elif kind in (HAND_ON, SET_UP):
            yield _slice(worker, f"{kind} {record['step']}", kind, start, end, _about(record))
        worker.free = max(worker.free, end)

    def _arrival(self, worker: _Worker, record: Mapping[str, Any], start: float) -> Iterator[Event]:
        """What a process did before it had a packet: it waited, then opened it."""
        opened = max(worker.free, start - 1e6 * record["fetch"])
        waited = max(worker.free, opened - 1e6 * record["wait"])
        if record["wait"] and waited < opened:
            yield _slice(worker, "wait", "wait", waited, opened, {"seconds": record["wait"]}) | _GREY
        if record["fetch"] and opened < start:
            yield _slice(worker, "fetch", "fetch", opened, start, {"seconds": record["fetch"]})

    def _packet(self, worker: _Worker, record: Mapping[str, Any], start: float, end: float) -> Iterator[Event]:
        """A packet, with those of its phases that are in no call: decoding comes first, writing last."""
        step, unit = record["step"], record["unit"] or ""
        began, later = self._steps.get(step, (start, False))
        self._steps[step] = min(began, start), later or unit.endswith(".parquet")
        self._passages.add(unit, record["start"], self._number(step), worker.tid, start, end)
        yield _slice(worker, step, PACKET, start, end, _about(record))
        written = max(start, end - 1e6 * record["write"])
        if 0 < worker.called - written < _TOUCHING_US:
            written = min(worker.called, end)
        worker.packet = (start, written)
        if step == DECODE and record["decode"]:
            yield _phase(worker, "decode", start, min(written, start + 1e6 * record["decode"]), record["decode"])
        if record["write"]:
            yield _phase(worker, "write", written, end, record["write"])

    def _call(self, worker: _Worker, record: Mapping[str, Any], start: float) -> Iterator[Event]:
        """A call and its phases end to end; where a GPU's clock makes them longer than the call, all are shortened."""
        end = start + 1e6 * record["seconds"]
        begin, until = worker.packet
        if begin - _TOUCHING_US < start < until:  # else its packet has not been read yet
            start, end = max(start, begin), min(end, until) if end - until < _TOUCHING_US else end
        if 0 < worker.called - start < _TOUCHING_US:
            start = worker.called
        end = max(start, end)
        worker.called = end
        yield _slice(worker, f"{record['step']} call", CALL, start, end, _about(record))
        known = [(name, record[name]) for name in PHASES if record[name]]
        scale = min(1e6, (end - start) / sum(seconds for _, seconds in known)) if known else 0.0
        at = start
        for name, seconds in known:
            yield _phase(worker, name, at, min(end, at + scale * seconds), seconds)
            at += scale * seconds
        memory = {what: record[column] for what, column in _VRAM.items() if record[column] is not None}
        if memory:
            yield _counter(worker.pid, f"VRAM GB {record['worker']}", end, memory)

    def sampled(self, sample: Mapping[str, Any]) -> Iterator[Event]:
        """One sample of a machine."""
        pid, at = self._node(sample["node"]), self._at(sample["time"])
        told = [(name, sample[column]) for column, name in _MACHINE.items()]
        for number, card in enumerate(sample["gpus"] or ()):
            told += [(f"GPU {number} {name}", card[column]) for column, name in _CARD.items()]
        yield from (_counter(pid, name, at, {"value": value}) for name, value in told if value is not None)

    def flows(self) -> Iterator[Event]:
        """Arrows from step to step."""
        threads = {worker.tid: worker for worker in self._workers.values()}
        for hop in self._passages.hops():
            place = {"ts": round(hop.moment, 3), "pid": threads[hop.worker].pid, "tid": hop.worker}
            yield {"name": "packet", "cat": "flow", "ph": hop.phase, "id": hop.name, "bp": "e"} | place

    def queues(self, *, going_on: bool) -> Iterator[Event]:
        """How many packets wait for each step."""
        order = [step for step in self._ordered() if not self._steps[step][1]]
        following = {self._number(one): self._number(after) for one, after in pairwise(order)} if going_on else None
        names = list(self._numbers)
        for step, moments, depths in self._passages.queues(following):
            for moment, depth in zip(moments.tolist(), depths, strict=True):
                yield _counter(_PIPELINE, f"waiting for {names[step]}", moment, {"packets": depth})

    def names(self) -> Iterator[Event]:
        """Rows: the pipeline, then machines, each with its processes in the order of their steps."""
        for place, (name, pid) in enumerate((("pipeline", _PIPELINE), *self._nodes.items())):
            yield _named("process_name", pid, 0, {"name": name})
            yield _named("process_sort_index", pid, 0, {"sort_index": place})
        order = {step: place for place, step in enumerate(self._ordered())}
        last = len(order)

        def places(worker: _Worker) -> list[int]:
            return sorted(order.get(step, last) for step in worker.steps)

        for place, worker in enumerate(sorted(self._workers.values(), key=lambda one: (places(one), one.name))):
            steps = sorted(worker.steps, key=lambda step: (order.get(step, last), step))
            yield _named("thread_name", worker.pid, worker.tid, {"name": f"{'+'.join(steps)} ({worker.name})"})
            yield _named("thread_sort_index", worker.pid, worker.tid, {"sort_index": place})

    def _ordered(self) -> list[str]:
        return sorted(self._steps, key=lambda step: self._steps[step][0])

    def _at(self, seconds: float) -> float:
        return 1e6 * (seconds - self._first)

    def _number(self, step: str) -> int:
        return self._numbers.setdefault(step, len(self._numbers))

    def _node(self, name: str) -> int:
        return self._nodes.setdefault(name, _PIPELINE + 1 + len(self._nodes))

    def _worker(self, record: Mapping[str, Any]) -> _Worker:
        name = record["worker"]
        if name not in self._workers:
            self._workers[name] = _Worker(name=name, pid=self._node(record["node"]), tid=len(self._workers) + 1)
        self._workers[name].steps.add(record["step"])
        return self._workers[name]


def _slice(worker: _Worker, name: str, category: str, start: float, end: float, args: Mapping[str, Any]) -> Event:
    begin = round(start, 3)  # to whole nanoseconds at both ends: Perfetto drops what overlaps by one
    times = {"ts": begin, "dur": round(max(0.0, round(end, 3) - begin), 3)}
    return {"name": name, "cat": category, "ph": "X", "pid": worker.pid, "tid": worker.tid, "args": args} | times


def _phase(worker: _Worker, name: str, start: float, end: float, seconds: float) -> Event:
    return _slice(worker, name, "phase", start, end, {"seconds": seconds})


def _counter(pid: int, name: str, at: float, values: Mapping[str, float]) -> Event:
    return {"name": name, "ph": "C", "ts": round(at, 3), "pid": pid, "args": values}


def _named(name: str, pid: int, tid: int, args: Mapping[str, Any]) -> Event:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _about(record: Mapping[str, Any]) -> dict[str, Any]:
    items: Iterable[tuple[str, int]] = record["items"] or ()
    facts = {name: record[name] for name in ("unit", "start", "stop") if record["unit"]}
    more = {name: record[name] for name in ("retries", "device") if record[name]}
    return facts | {"rows": record["rows"], "cost": record["cost"]} | more | ({"items": dict(items)} if items else {})
