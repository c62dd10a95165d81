"""Packet flows: the steps that each packet passes, which a timeline draws as arrows and queue lengths.

A packet's next step is known only from a later record. So all flows of a run are in memory at once, in 40 bytes for
each packet and step.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import count

import numpy as np
from numpy.typing import NDArray

Depths = tuple[int, NDArray[np.float64], list[int]]

_TABLE = ".parquet"  # a unit of the second pass is a file of a table, and no packet


class PacketFlows:
    """Every packet's way through its steps. Steps, workers and units are numbers; times are in any one unit."""

    def __init__(self) -> None:
        self._units: dict[str, int] = defaultdict(count().__next__)
        self._unit, self._start, self._step, self._worker = array("q"), array("q"), array("h"), array("i")
        self._began, self._ended = array("d"), array("d")

    def add(self, unit: str, start: int, step: int, worker: int, began: float, ended: float) -> None:
        """Add a packet's passage through a step."""
        self._unit.append(self._units[unit])
        self._start.append(start)
        self._step.append(step)
        self._worker.append(worker)
        self._began.append(began)
        self._ended.append(ended)

    def hops(self) -> Iterator[tuple[str, str, int, float]]:
        """Yield each packet's arrivals at its steps in order of time; packets of a single step have none.

        An arrival is `unit:start`, the phase (s at its first step, f at its last one, t in between), worker and moment.
        """
        order, same = self._order()
        names = list(self._units)
        for place, row in enumerate(order):
            before, after = place > 0 and same[place - 1], place < len(same) and same[place]
            if before or after:
                phase = "s" if not before else "t" if after else "f"
                yield f"{names[self._unit[row]]}:{self._start[row]}", phase, self._worker[row], self._began[row]

    def queues(self, following: Mapping[int, int] | None = None) -> Iterator[Depths]:
        """Yield each step that packets waited for, with moments and the queue length from each moment on.

        A packet waits from the end of its previous step. Files of the second pass do not count. While a run goes on, a
        packet in no later step waits for the one `following` names. None once the run has ended: an earlier one may
        have finished it.
        """
        order, same = self._order()
        step, began, ended, unit = (
            np.asarray(column)[order] for column in (self._step, self._began, self._ended, self._unit)
        )
        tables = np.array([name.endswith(_TABLE) for name in self._units], bool)
        packets = ~tables[unit] if len(unit) else np.empty(0, bool)
        passed = np.flatnonzero(same & packets[:-1] & (step[:-1] != step[1:])) if len(unit) else np.empty(0, int)
        last = np.flatnonzero(np.append(~same, True) & packets) if len(unit) else passed
        stuck = last[[int(number) in (following or {}) for number in step[last]]] if following else last[:0]
        waits_for = np.concatenate([step[passed + 1], [(following or {})[int(number)] for number in step[stuck]]])
        since = np.concatenate([ended[passed], ended[stuck]])
        until = np.concatenate([np.maximum(began[passed + 1], ended[passed]), np.full(len(stuck), np.inf)])
        for number in np.unique(waits_for):
            mine = waits_for == number
            ends = until[mine][np.isfinite(until[mine])]
            moments, where = np.unique(np.concatenate([since[mine], ends]), return_inverse=True)
            changes = np.bincount(where, np.repeat([1, -1], [int(mine.sum()), len(ends)]), len(moments))
            yield int(number), moments, np.cumsum(changes).astype(int).tolist()

    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return row numbers sorted by packet and time, and a mask: the row's packet is that of the next row."""
        unit, start = np.asarray(self._unit), np.asarray(self._start)
        order = np.lexsort((np.asarray(self._began), start, unit))
        unit, start = unit[order], start[order]
        return order, (unit[1:] == unit[:-1]) & (start[1:] == start[:-1])
