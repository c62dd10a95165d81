"""The last seconds of a run: how fast each step is just now, what it does with its time, and what the cards do.

docs/profiling.md says what each figure means. Nothing here knows what time it is: it is told, so that tests can say.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

import numpy as np

from pipeline.sample import Card, Reading, Sample

WINDOW_SECONDS = 10.0  # short enough to follow what one does, long enough for several packets
_REACH = 3  # longest packets that the window holds at least: one that goes on has told nothing yet
_RECENT = 32  # packets among which the longest is looked for: the first ones of a run are no measure later
_MOST = 2048  # packets of a step and readings of a machine that are kept
_BEFORE = ("wait", "fetch")


@dataclass(frozen=True, kw_only=True)
class StepNow:
    """One step's last seconds."""

    rows_per_s: float
    busy: float  # in the step: share of its processes' time, 0 to 1
    process_busy: float  # in any step of these processes
    waiting: float  # for input, before any of them
    packets: int
    lasted: float  # seconds since its first packet began
    p95_ms: float | None  # of a call; None without calls
    infer: float  # share of the step's seconds in the model
    device: str
    workers: frozenset[str]  # host:pid
    vram_peak_gb: float | None  # of the fullest process, by torch
    card: Card | None  # what its machines' busiest card did; None on the CPU, or where nobody tells
    cpu_use: float | None = None  # of its machines' cores, by whomever, 0 to 1; None where nobody tells


class Live:
    """Keeps what is needed of the last seconds."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[Sample, float]]] = defaultdict(_kept)  # and seconds of waiting before it
        self._by_worker: dict[str, deque[tuple[Sample, float]]] = defaultdict(_kept)
        self._readings: dict[str, deque[Reading]] = defaultdict(_kept)
        self._first: dict[str, float] = {}  # when a step began

    def add(self, sample: Sample) -> None:
        """Take one of a packet."""
        before = sum(sample.around.get(name, 0.0) for name in _BEFORE)
        if sample.worker not in self._by_worker:
            before = 0.0  # before its first packet a process waits for others to start, not for input
        self._by_worker[sample.worker].append((sample, before))
        self._samples[sample.step].append((sample, before))
        self._first[sample.step] = min(self._first.get(sample.step, sample.started), sample.started)

    def read(self, reading: Reading) -> None:
        """Take what a machine's cards do."""
        self._readings[reading.node].append(reading)

    def step(self, name: str, now: float) -> StepNow | None:
        """A step's last seconds; None before its first packet, and when none came for long.

        Args:
            name: of the step.
            now: seconds since the epoch.
        """
        known = self._samples.get(name)
        if not known:
            return None
        longest = max(before + sample.seconds for sample, before in islice(reversed(known), _RECENT))
        since = now - max(WINDOW_SECONDS, _REACH * longest)
        mine = [sample for sample, _ in _latest(known, since)]
        if not mine:
            return None
        workers = frozenset(sample.worker for sample in mine)
        seconds = sum(sample.seconds for sample in mine)
        working, any_working, waited = self._shares(name, workers, since)
        whole = [sample for sample in mine if sample.rows]  # others are of files that fail, or end: time, and no packet
        nodes = {one.rpartition(":")[0] for one in workers}
        calls = [one for sample in whole for one in sample.calls]
        peaks = [sample.memory[2] for sample in mine if sample.memory]
        begin = max(since, self._first[name])
        return StepNow(
            rows_per_s=sum(sample.rows * _inside(sample, begin, now) for sample in mine) / max(1e-3, now - begin),
            busy=working,
            process_busy=any_working,
            waiting=waited,
            packets=len(whole),
            lasted=now - self._first[name],
            p95_ms=1000 * float(np.percentile(calls, 95)) if calls else None,
            infer=sum(sample.phases.get("infer", 0.0) for sample in mine) / max(seconds, 1e-9),
            device=mine[0].device,
            workers=workers,
            vram_peak_gb=max(peaks, default=None),
            card=self._busiest(nodes, now) if mine[0].device != "cpu" else None,
            cpu_use=self._cpu_use(nodes, now),
        )

    def cards(self, now: float) -> dict[str, Card]:
        """Every card by `node:number`: means over the last seconds, of memory and temperature the last."""
        nodes = {node: self._of(node, now) for node in sorted(self._readings)}
        return {f"{node}:{number}": card for node, cards in nodes.items() for number, card in enumerate(cards)}

    def _busiest(self, nodes: Iterable[str], now: float) -> Card | None:
        found = [card for node in nodes for card in self._of(node, now)]
        return max(found, key=lambda card: card.get("use_percent") or 0.0, default=None)

    def _cpu_use(self, nodes: Iterable[str], now: float) -> float | None:
        readings = (one for node in nodes for one in self._readings.get(node, ()))
        told = [one.cpu_percent for one in readings if one.time > now - WINDOW_SECONDS and one.cpu_percent is not None]
        return float(np.mean(told)) / 100 if told else None

    def _of(self, node: str, now: float) -> list[Card]:
        told = [one.cards for one in self._readings.get(node, ()) if one.time > now - WINDOW_SECONDS]
        return averaged(told)

    def _shares(self, name: str, workers: Iterable[str], since: float) -> tuple[float, float, float]:
        """Busy in a step, in any, and waiting: of the time from each process's first packet to its last one's end."""
        span, sums = 1e-9, np.zeros(3)
        for worker in workers:
            inside = _latest(self._by_worker[worker], since)
            begin = min(sample.started - before for sample, before in inside)
            span += max(sample.ended for sample, _ in inside) - begin
            for sample, before in inside:
                wait = min(before, sample.around.get("wait", 0.0))
                sums += (sample.seconds * (sample.step == name), sample.seconds, wait)
        working, any_working, waited = (float(share) for share in np.minimum(1.0, sums / span))
        return working, any_working, waited


def averaged(told: Sequence[Sequence[Card]]) -> list[Card]:
    """Cards over some time: means of use and power, the last of the rest; of each figure those that are known."""
    return [_average([cards[i] for cards in told if i < len(cards)]) for i in range(max(map(len, told), default=0))]


def _average(card: Sequence[Card]) -> Card:
    found: dict[str, float | None] = {}
    for name in {name: None for one in card for name in one}:
        known = [value for one in card if (value := one.get(name)) is not None]
        mean = name in ("use_percent", "power_w")
        found[name] = (sum(known) / len(known) if mean else known[-1]) if known else None
    return found


def _latest(known: deque[tuple[Sample, float]], since: float) -> list[tuple[Sample, float]]:
    """Those that ended after a moment, the last one first; samples come in about the order in which packets end."""
    return list(takewhile(lambda one: one[0].ended > since, reversed(known)))


def _kept() -> deque[Any]:
    return deque(maxlen=_MOST)


def _inside(sample: Sample, begin: float, end: float) -> float:
    """The share of a packet's time between two moments."""
    if sample.seconds <= 0:
        return 1.0
    return max(0.0, min(end, sample.ended) - max(begin, sample.started)) / sample.seconds
