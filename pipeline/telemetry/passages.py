"""Packets on their way from step to step: what a time line draws between the slices, kept in 40 bytes for each of them.

A packet's next step is known only from a later record, so this is all of a run that must be in memory at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Depths = tuple[int, NDArray[np.float64], list[int]]

_TABLE = ".parquet"  # a unit of the second pass is a file of a table, and no packet


@dataclass(frozen=True, kw_only=True)
class Hop:
    """A packet in one of its steps."""

    name: str  # unit:start
    phase: str  # s at the first of its steps, f at the last, t between
    worker: int
    moment: float  # when it began there


class Passages:
    """Every packet's way through its steps; steps, workers and units are numbered, times are of any one unit."""

    def __init__(self) -> None:
        self._units: dict[str, int] = {}
        self._unit, self._start, self._step, self._worker = array("q"), array("q"), array("h"), array("i")
        self._began, self._ended = array("d"), array("d")

    def add(self, unit: str, start: int, step: int, worker: int, began: float, ended: float) -> None:
        """A packet went through a step."""
        self._unit.append(self._units.setdefault(unit, len(self._units)))
        self._start.append(start)
        self._step.append(step)
        self._worker.append(worker)
        self._began.append(began)
        self._ended.append(ended)

    def hops(self) -> Iterator[Hop]:
        """Packet by packet, in order of time; none of packets that were in one step only."""
        order, same = self._order()
        names = list(self._units)
        for place, row in enumerate(order):
            before, after = place > 0 and same[place - 1], place < len(same) and same[place]
            if before or after:
                yield Hop(
                    name=f"{names[self._unit[row]]}:{self._start[row]}",
                    phase="s" if not before else "t" if after else "f",
                    worker=self._worker[row],
                    moment=self._began[row],
                )

    def queues(self, following: Mapping[int, int] | None = None) -> Iterator[Depths]:
        """Of each step that packets waited for: moments, and how many were waiting from each on.

        A packet waits from the end of the step that it went through before. Files of the second pass do not count.

        Args:
            following: by step of the first pass the next one, while a run goes on: packets that are in no later step
                wait for that one. None once it has ended: where a step had been finished by an earlier run, nobody
                waited for it.
        """
        order, same = self._order()
        step, began, ended, unit = (
            np.asarray(kept)[order] for kept in (self._step, self._began, self._ended, self._unit)
        )
        tables = np.array([name.endswith(_TABLE) for name in self._units], bool)
        packets = ~tables[unit] if len(unit) else np.empty(0, bool)
        passed = np.flatnonzero(same & packets[:-1] & (step[:-1] != step[1:])) if len(unit) else np.empty(0, int)
        last = np.flatnonzero(np.append(~same, True) & packets) if len(unit) else passed
        stuck = last[[int(one) in (following or {}) for one in step[last]]] if following else last[:0]
        waits_for = np.concatenate([step[passed + 1], [(following or {})[int(one)] for one in step[stuck]]])
        since = np.concatenate([ended[passed], ended[stuck]])
        until = np.concatenate([np.maximum(began[passed + 1], ended[passed]), np.full(len(stuck), np.inf)])
        for one in np.unique(waits_for):
            mine = waits_for == one
            yield int(one), *_depths(since[mine], until[mine])

    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Rows by packet and time, and whether each but the last one is of the same packet as the next."""
        unit, start = np.asarray(self._unit), np.asarray(self._start)
        order = np.lexsort((np.asarray(self._began), start, unit))
        unit, start = unit[order], start[order]
        return order, (unit[1:] == unit[:-1]) & (start[1:] == start[:-1])


def _depths(since: NDArray[np.float64], until: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    until = until[np.isfinite(until)]
    moments, where = np.unique(np.concatenate([since, until]), return_inverse=True)
    changes = np.bincount(where, np.repeat([1, -1], [len(since), len(until)]), len(moments))
    return moments, np.cumsum(changes).astype(int).tolist()
