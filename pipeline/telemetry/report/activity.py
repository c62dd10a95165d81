"""What every process of a run did with its time, in so many slices: a summary of its records that fits on a page.

Records are read in pieces and added up in a grid of processes, kinds of activity and slices, so that memory depends on
the number of processes and not on the length of the run. docs/profiling.md says what the records mean; phases of a
call are laid end to end, as `framemill trace` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.failure import DECODE
from pipeline.storage import Store
from pipeline.telemetry.records import CALL, HAND_ON, PACKET, SET_UP, to_table
from pipeline.telemetry.streams import CALLS, batches
from pipeline.telemetry.timeline import PHASES

SLICES = 400  # of a run; finer than the pixels of a page
_NAMED = 3  # steps of a process; with one more all are named
MOST_WORKERS = 1000  # that are added up: 40 kB each
OTHER, SETTING_UP, STARVED, HELD, IDLE = "other work", "set-up", "waiting for input", "handing on", "idle"
WORK = (*PHASES, OTHER)
KINDS = (*WORK, SETTING_UP, STARVED, HELD, IDLE)

_PLANES = (*PHASES, "fetch", "packet", "call", SETTING_UP, STARVED, HELD)
_COLUMNS = ("kind", "step", "worker", "started", "seconds", "wait", "fetch", "seal", *PHASES)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One process."""

    name: str  # host:pid
    steps: tuple[str, ...]  # in the order in which they first began
    seconds: Floats  # len(KINDS) SLICES: of each slice, what it went to; they add up to the slice's length

    @property
    def said(self) -> str:
        """Its steps in a few words."""
        shown = self.steps if len(self.steps) <= _NAMED + 1 else self.steps[:_NAMED]
        more = len(self.steps) - len(shown)
        return " + ".join([*shown, *([f"{more} more"] if more else [])])

    def share(self, kind: str) -> float:
        """Of the whole run's time, 0 to 1."""
        whole = float(self.seconds.sum())
        return float(self.seconds[KINDS.index(kind)].sum()) / whole if whole else 0.0


@dataclass(frozen=True, kw_only=True)
class Activity:
    """All processes of a run, in the order of their steps."""

    began: float  # seconds since the epoch
    seconds: float  # from the first record's beginning to the last one's end
    workers: Sequence[Worker]
    steps: Sequence[str]  # decode first, then in the order in which they first began
    left_out: int  # processes beyond `MOST_WORKERS`


def activity(store: Store, run: str) -> Activity | None:
    """A run's records added up; None where there are none.

    Raises:
        GoneError: the run ended while it was being read.
    """
    span = _span(store, run)
    if span is None:
        return None
    grid = _Grid(*span)
    for table in batches(store, CALLS, run, to_table, columns=_COLUMNS):
        grid.add(table)
    return grid.activity()


def _span(store: Store, run: str) -> tuple[float, float] | None:
    found = [_ends(table) for table in batches(store, CALLS, run, to_table, columns=_COLUMNS) if table.num_rows]
    return (min(begin for begin, _ in found), max(end for _, end in found)) if found else None


def _ends(table: pa.Table) -> tuple[float, float]:
    started = _floats(table, "started")
    return float(started.min()), float((started + _floats(table, "seconds") + _floats(table, "seal")).max())


class _Grid:
    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._length = begin, max(end - begin, 1e-6)
        self._width = self._length / SLICES
        self._workers: dict[str, int] = {}
        self._steps: dict[tuple[int, str], float] = {}  # of a process and step: when it first began
        self._left_out: set[str] = set()
        self._inside = np.zeros((0, len(_PLANES), SLICES))
        self._across = np.zeros((0, len(_PLANES), SLICES + 1))  # changes of what fills whole slices

    def add(self, table: pa.Table) -> None:
        table = table.filter(pc.is_in(table["worker"], pa.array(self._known(table), pa.string())))
        if not table.num_rows:
            return
        worker = np.array([self._workers[name] for name in table["worker"].to_pylist()])
        kind = np.array(table["kind"].to_pylist())
        step = np.array(table["step"].to_pylist())
        start = _floats(table, "started") - self._begin
        columns = {name: _floats(table, name) for name in _COLUMNS[4:]}
        began = np.where(kind == SET_UP, self._length + start, start)  # the order is that of the packets, where any are
        for one, name, moment in zip(worker.tolist(), step.tolist(), began.tolist(), strict=True):
            self._steps[one, name] = min(moment, self._steps.get((one, name), moment))
        for plane, begin, end, mask in _intervals(kind, step, start, columns):
            self._fill(worker[mask], _PLANES.index(plane), begin[mask], end[mask])

    def activity(self) -> Activity:
        first: dict[str, float] = {}
        for (_, step), moment in self._steps.items():
            first[step] = min(moment, first.get(step, moment))
        order = sorted(first, key=lambda step: (step != DECODE, first[step]))
        places = {step: place for place, step in enumerate(order)}
        made = [self._worker(name, at, places) for name, at in self._workers.items()]
        made.sort(key=lambda one: ([places[step] for step in one.steps], one.name))
        return Activity(
            began=self._begin, seconds=self._length, workers=made, steps=order, left_out=len(self._left_out)
        )

    def _known(self, table: pa.Table) -> list[str]:
        """Processes that are added up, with room for those that are new."""
        for name in pc.unique(table["worker"]).to_pylist():
            if name not in self._workers:
                if len(self._workers) >= MOST_WORKERS:
                    self._left_out.add(name)
                    continue
                self._workers[name] = len(self._workers)
        more = len(self._workers) - len(self._inside)
        self._inside = np.concatenate([self._inside, np.zeros((more, *self._inside.shape[1:]))])
        self._across = np.concatenate([self._across, np.zeros((more, *self._across.shape[1:]))])
        return list(self._workers)

    def _fill(self, worker: Ints, plane: int, begin: Floats, end: Floats) -> None:
        """Add intervals: their ends to the slices that they begin and end in, and what lies between."""
        begin, end = begin.clip(0, self._length), end.clip(0, self._length)
        first, last = ((at / self._width).astype(np.int64).clip(0, SLICES - 1) for at in (begin, end))
        same = first == last
        inside, across = self._inside[:, plane], self._across[:, plane]
        _put(inside, worker[same], first[same], np.maximum(end - begin, 0)[same])
        worker, begin, end, first, last = (one[~same] for one in (worker, begin, end, first, last))
        _put(inside, worker, first, (first + 1) * self._width - begin)
        _put(inside, worker, last, end - last * self._width)
        _put(across, worker, first + 1, np.full(len(worker), self._width))
        _put(across, worker, last, np.full(len(worker), -self._width))

    def _worker(self, name: str, at: int, places: Mapping[str, int]) -> Worker:
        planes = dict(zip(_PLANES, self._inside[at] + np.cumsum(self._across[at], axis=1)[:, :-1], strict=True))
        phases = np.array([planes[phase] for phase in PHASES])
        other = np.maximum(0, np.maximum(planes["packet"], planes["call"]) - phases.sum(axis=0)) + planes["fetch"]
        known = np.concatenate([phases, [other], [planes[SETTING_UP]]])
        known *= np.minimum(1, self._width / np.maximum(known.sum(axis=0), 1e-12))
        # A wait may reach back over what was done meanwhile, so it gets only what is left.
        held = np.minimum(planes[HELD], np.maximum(0, self._width - known.sum(axis=0)))
        starved = np.minimum(planes[STARVED], np.maximum(0, self._width - known.sum(axis=0) - held))
        idle = np.maximum(0, self._width - known.sum(axis=0) - held - starved)
        steps = sorted((step for one, step in self._steps if one == at), key=lambda step: places[step])
        return Worker(name=name, steps=tuple(steps), seconds=np.concatenate([known, [starved, held, idle]]))


_Interval = tuple[str, Floats, Floats, NDArray[np.bool_]]


def _intervals(
    kind: NDArray[np.str_], step: NDArray[np.str_], start: Floats, columns: Mapping[str, Floats]
) -> Iterator[_Interval]:
    """By plane, from when until when each record fills it, and which records do."""
    end = start + columns["seconds"]
    packet, call, hand_on = kind == PACKET, kind == CALL, kind == HAND_ON
    opened = start - columns["fetch"]
    yield STARVED, opened - columns["wait"], opened, packet
    yield "fetch", opened, start, packet
    yield "packet", start, end, packet
    yield "call", start, end, call
    yield HELD, start, end + columns["seal"], hand_on
    yield SETTING_UP, start, end, kind == SET_UP
    yield "decode", start, np.minimum(end, start + columns["decode"]), packet & (step == DECODE)
    yield "write", np.maximum(start, end - columns["write"]), end, packet
    known = sum((columns[phase] for phase in PHASES), np.zeros(len(start)))
    scale = np.minimum(1.0, columns["seconds"] / np.maximum(known, 1e-12))
    at = start
    for phase in PHASES:
        until = at + scale * columns[phase]
        yield phase, at, until, call
        at = until


def _put(grid: Floats, worker: Ints, at: Ints, values: Floats) -> None:
    """Add values to a grid (workers, slices), also several to one place."""
    if len(values):
        count, width = grid.shape
        grid += np.bincount(worker * width + at, values, count * width).reshape(count, width)


def _floats(table: pa.Table, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)
