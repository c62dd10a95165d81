"""Activity of each process of a run over time, in slices.

Records are read in batches and added up in a grid of processes, kinds of activity and slices. So memory depends on the
number of processes, not on the length of the run. docs/measuring/profiling.md explains the records. A call's phases are
laid end to end, as in `framekiln trace`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.row_errors import DECODE
from framekiln.output.object_store import Store
from framekiln.profiling.record_log import CALLS, batches
from framekiln.profiling.records import CALL, DEATH, HAND_ON, INSIDE, PACKET, SET_UP
from framekiln.profiling.stats.speed import ends, floats

SLICES = 400  # slices of a run; finer than the pixels of a page
_NAMED = 3  # steps in a title; four are all named
MOST_PROCESSES = 1000  # processes added up: 40 kB each
OTHER, SETTING_UP, STARVED, HELD, IDLE = "other work", "set-up", "waiting for input", "handing on", "idle"
WORK = (*INSIDE, OTHER)
KINDS = (*WORK, SETTING_UP, STARVED, HELD, IDLE)

_PLANES = (*INSIDE, "fetch", "packet", "call", SETTING_UP, STARVED, HELD)
_COLUMNS = ("kind", "step", "worker", "started", "seconds", "wait", "fetch", "seal", *INSIDE)

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ProcessActivity:
    """One process."""

    name: str  # host:pid
    steps: tuple[str, ...]  # steps in the order in which they first began
    seconds: Floats  # len(KINDS) SLICES: seconds of each kind in each slice; a column adds up to the slice's length

    @property
    def title(self) -> str:
        """Its steps; of many, the first three and the number of others."""
        shown = self.steps if len(self.steps) <= _NAMED + 1 else self.steps[:_NAMED]
        more = len(self.steps) - len(shown)
        return " + ".join([*shown, *([f"{more} more"] if more else [])])

    def share(self, kind: str) -> float:
        """Return the share of the run's time in a kind of activity, 0 to 1."""
        whole = float(self.seconds.sum())
        return float(self.seconds[KINDS.index(kind)].sum()) / whole if whole else 0.0


@dataclass(frozen=True, kw_only=True)
class Activity:
    """All processes of a run, in the order of their steps."""

    began: float  # seconds since the epoch
    seconds: float  # time from the first record's beginning to the last one's end
    processes: Sequence[ProcessActivity]
    steps: Sequence[str]  # decode first, then in the order in which they first began
    left_out: int  # processes beyond `MOST_PROCESSES`


def read_activity(store: Store, run: str) -> Activity | None:
    """Add up a run's records; None without records. Raises GoneError: the run ended during the reading."""
    begins, stops, workers = [], [], dict[str, None]()
    for table in batches(store, CALLS, run, columns=("kind", "worker", "started", "seconds", "seal")):
        if table.num_rows:
            begins.append(float(floats(table, "started").min()))
            stops.append(float((ends(table) + floats(table, "seal")).max()))
            alive = table.filter(pc.not_equal(table["kind"], DEATH))
            workers |= dict.fromkeys(pc.unique(alive["worker"]).to_pylist())
    if not begins:
        return None
    grid = _Grid(min(begins), max(stops), list(workers))
    for table in batches(store, CALLS, run, columns=_COLUMNS):
        grid.add(table)
    return grid.activity()


class _Grid:
    def __init__(self, begin: float, end: float, workers: Sequence[str]) -> None:
        self._begin, self._length = begin, max(end - begin, 1e-6)
        self._width = self._length / SLICES
        self._processes = {name: number for number, name in enumerate(workers[:MOST_PROCESSES])}
        self._left_out = len(workers) - len(self._processes)
        self._starts: dict[tuple[int, str], float] = {}  # first start of a step in a process
        # Starts less ends of intervals in each slice, by process and plane: their number, and the sum of their times.
        self._moments = np.zeros((2, len(self._processes), len(_PLANES), SLICES))

    def add(self, table: pa.Table) -> None:
        table = table.filter(pc.not_equal(table["kind"], DEATH))
        table = table.filter(pc.is_in(table["worker"], pa.array(list(self._processes), pa.string())))
        if not table.num_rows:
            return
        process = np.array([self._processes[name] for name in table["worker"].to_pylist()])
        kind = np.array(table["kind"].to_pylist())
        step = np.array(table["step"].to_pylist())
        start = floats(table, "started") - self._begin
        columns = {name: floats(table, name) for name in _COLUMNS[4:]}
        first = np.where(kind == SET_UP, self._length + start, start)  # packets order steps
        for number, name, time in zip(process.tolist(), step.tolist(), first.tolist(), strict=True):
            self._starts[number, name] = min(time, self._starts.get((number, name), time))
        for plane, begin, end, mask in _list_intervals(kind, step, start, columns):
            for sign, moments in ((1, begin), (-1, np.maximum(begin, end))):
                times = moments[mask].clip(0, self._length)
                slices = (times / self._width).astype(np.int64).clip(0, SLICES - 1)
                np.add.at(self._moments[0, :, _PLANES.index(plane)], (process[mask], slices), sign)
                np.add.at(self._moments[1, :, _PLANES.index(plane)], (process[mask], slices), sign * times)

    def activity(self) -> Activity:
        first: dict[str, float] = {}
        for (_, step), time in self._starts.items():
            first[step] = min(time, first.get(step, time))
        order = sorted(first, key=lambda step: (step != DECODE, first[step]))
        places = {step: place for place, step in enumerate(order)}
        processes = [self._summarize_process(name, number, places) for name, number in self._processes.items()]
        processes.sort(key=lambda process: ([places[step] for step in process.steps], process.name))
        begin, length, left_out = self._begin, self._length, self._left_out
        return Activity(began=begin, seconds=length, processes=processes, steps=order, left_out=left_out)

    def _summarize_process(self, name: str, number: int, places: Mapping[str, int]) -> ProcessActivity:
        open_ones, times = self._moments[:, number].cumsum(axis=-1)
        # Up to a slice's end, an open interval has lasted since its start; of ended ones the sums hold both ends.
        lasted = open_ones * self._width * np.arange(1, SLICES + 1) - times
        planes = dict(zip(_PLANES, np.maximum(0, np.diff(lasted, axis=-1, prepend=0)), strict=True))
        phases = np.array([planes[phase] for phase in INSIDE])
        other = np.maximum(0, np.maximum(planes["packet"], planes["call"]) - phases.sum(axis=0)) + planes["fetch"]
        work = np.concatenate([phases, [other], [planes[SETTING_UP]]])
        work *= np.minimum(1, self._width / np.maximum(work.sum(axis=0), 1e-12))
        # A recorded wait may overlap work, so it only gets the rest of the slice.
        held = np.minimum(planes[HELD], np.maximum(0, self._width - work.sum(axis=0)))
        starved = np.minimum(planes[STARVED], np.maximum(0, self._width - work.sum(axis=0) - held))
        idle = np.maximum(0, self._width - work.sum(axis=0) - held - starved)
        steps = sorted((step for owner, step in self._starts if owner == number), key=lambda step: places[step])
        return ProcessActivity(name=name, steps=tuple(steps), seconds=np.concatenate([work, [starved, held, idle]]))


def _list_intervals(
    kind: NDArray[np.str_], step: NDArray[np.str_], start: Floats, columns: Mapping[str, Floats]
) -> Iterator[tuple[str, Floats, Floats, NDArray[np.bool_]]]:
    """For each plane, yield the start and the end of each record in it, and a mask of the records that count."""
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
    measured = sum((columns[phase] for phase in INSIDE), np.zeros(len(start)))
    scale = np.minimum(1.0, columns["seconds"] / np.maximum(measured, 1e-12))
    begin = start
    for phase in INSIDE:
        until = begin + scale * columns[phase]
        yield phase, begin, until, call
        begin = until
