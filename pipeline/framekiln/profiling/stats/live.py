"""The last seconds of a run: statistics of each step, and load of GPUs and cores.

docs/measuring/profiling.md defines each figure. Callers pass the current time, so that tests can choose it.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile
from typing import Any

import numpy as np

from framekiln.profiling.records import GpuSample, Reading, StepEvent
from framekiln.profiling.stats import speed
from framekiln.profiling.stats.steps import ProcessStatistics, StepStatistics, weighted

WINDOW_SECONDS = 10.0  # s; short enough to follow changes, long enough for several packets
_LONGEST_PACKETS = 3  # the window covers this many of the longest packets, since a running packet has sent no event yet
_RECENT = 32  # the longest of this many last packets is sought; a run's first packets are slower
_BOUNDED: Any = partial(deque, maxlen=2048)  # events kept for a step, and readings for a node
_AVERAGED = ("use_percent", "power_w")


class LiveWindow:
    """Samples and readings of the last seconds."""

    def __init__(self) -> None:
        self._by_step: dict[str, deque[tuple[StepEvent, float]]] = defaultdict(_BOUNDED)  # each with the wait before it
        self._by_worker: dict[str, deque[tuple[StepEvent, float]]] = defaultdict(_BOUNDED)
        self._readings: dict[str, deque[Reading]] = defaultdict(_BOUNDED)
        self._first: dict[str, float] = {}  # start of each step's first packet

    def add(self, event: StepEvent) -> None:
        # Before its first packet a process waits for other processes' start, not for input.
        around = event.around if event.worker in self._by_worker else {}
        wait = around.get("wait", 0.0) + around.get("fetch", 0.0)
        self._by_worker[event.worker].append((event, wait))
        self._by_step[event.step].append((event, wait))
        self._first[event.step] = min(self._first.get(event.step, event.started), event.started)

    def read(self, reading: Reading) -> None:
        self._readings[reading.node].append(reading)

    def step(self, name: str, now: float) -> StepStatistics | None:
        """Return a step's last seconds; None before its first packet, or if no packet ended recently.

        The window begins with the step's first packet at the earliest, and ends now; rates are of the window alone.
        """
        events = self._by_step.get(name)
        if not events:
            return None
        longest = max(wait + event.seconds for event, wait in islice(reversed(events), _RECENT))
        since = now - max(WINDOW_SECONDS, _LONGEST_PACKETS * longest)
        recent = [event for event, _ in _list_ended_after(events, since)]
        return self._summarize(name, recent, since, now) if recent else None

    def _summarize(self, name: str, recent: Sequence[StepEvent], since: float, now: float) -> StepStatistics:
        workers = {event.worker for event in recent}
        processes = {worker: self._summarize_process(name, worker, since) for worker in workers}
        nodes = {worker.rpartition(":")[0] for worker in workers}
        packets = [event for event in recent if event.rows]  # events without rows count as time, not as packets
        calls = [seconds for event in packets for seconds in event.calls]
        begin = max(since, self._first[name])
        rows, seconds, totals = 0.0, sum(event.seconds for event in recent), speed.StepTotals()
        for event in recent:
            inside = min(now, event.ended) - max(begin, event.started)
            rows += event.rows * (max(0.0, inside) / event.seconds if event.seconds > 0 else 1.0)
            totals.add(event)
        cores = [
            one.cpu_percent for node in nodes for one in self._list_recent(node, now) if one.cpu_percent is not None
        ]
        step = StepStatistics(
            step=name,
            device=recent[0].device,
            rows=totals.rows,
            rows_per_s=speed.rows_per_s(rows, max(1e-3, now - begin)),
            seconds=seconds,
            **weighted(processes),
            packets=len(packets),
            calls=len(calls),
            call_ms=speed.percentiles_ms(calls),
            phases=speed.phase_shares(totals.phases, seconds),
            begin=self._first[name],
            end=now,
            retries=sum(event.retries for event in recent),
            vram_peak_gb=max((event.memory[2] for event in recent if event.memory), default=None),
            gpu_use=None,
            cpu_use=float(np.mean(cores)) / 100 if cores else None,
        )
        use = (self.gpu(step, now) or {}).get("use_percent")
        return step if use is None else replace(step, gpu_use=use / 100)

    def _summarize_process(self, name: str, worker: str, since: float) -> ProcessStatistics:
        """Return a process in a step; its time starts with the wait before its first packet in the window.

        Its time ends with the last packet of any of its steps.
        """
        events = _list_ended_after(self._by_worker[worker], since)
        begin, end = min(event.started - wait for event, wait in events), max(event.ended for event, _ in events)
        length = end - begin
        own = [event for event, _ in events if event.step == name]
        waited = sum(min(wait, event.around.get("wait", 0.0)) for event, wait in events)
        return ProcessStatistics(
            rows=(rows := sum(event.rows for event in own)),
            rows_per_s=speed.rows_per_s(rows, length),
            seconds=sum(event.seconds for event in own),
            begin=begin,
            end=end,
            busy=speed.share_of_time(_measure_covered(own), length),
            process_busy=speed.share_of_time(_measure_covered([event for event, _ in events]), length),
            starved=speed.share_of_time(waited, length),
        )

    def gpu(self, step: StepStatistics, now: float) -> GpuSample | None:
        """Return the busiest GPU among a step's nodes; None on the CPU and without NVML."""
        nodes = {worker.rpartition(":")[0] for worker in step.workers} if step.device != "cpu" else ()
        gpus = (gpu for node in nodes for gpu in self._average_gpus(node, now))
        return max(gpus, key=lambda gpu: gpu.get("use_percent") or 0.0, default=None)

    def gpus(self, now: float) -> dict[str, GpuSample]:
        """Return each GPU by `node:number`: means of use and power, last values of memory and temperature."""
        by_node = {node: self._average_gpus(node, now) for node in sorted(self._readings)}
        return {f"{node}:{number}": gpu for node, gpus in by_node.items() for number, gpu in enumerate(gpus)}

    def _average_gpus(self, node: str, now: float) -> list[GpuSample]:
        return averaged([reading.gpus for reading in self._list_recent(node, now)])

    def _list_recent(self, node: str, now: float) -> list[Reading]:
        return [reading for reading in self._readings.get(node, ()) if reading.time > now - WINDOW_SECONDS]


def _measure_covered(events: Sequence[StepEvent]) -> float:
    return speed.covered_s(np.array([event.started for event in events]), np.array([event.seconds for event in events]))


def averaged(readings: Sequence[Sequence[GpuSample]]) -> list[GpuSample]:
    """Return each GPU over several readings: means of use and power, last known values of the rest."""
    averages: list[GpuSample] = []
    for number in range(max(map(len, readings), default=0)):
        own = [gpus[number] for gpus in readings if number < len(gpus)]
        known = {name: [one[name] for one in own if one.get(name) is not None] for one in own for name in one}
        values = {name: np.array(found, float) for name, found in known.items()}
        averages.append(
            {n: float(v.mean() if n in _AVERAGED else v[-1]) if len(v) else None for n, v in values.items()}
        )
    return averages


def _list_ended_after(events: deque[tuple[StepEvent, float]], since: float) -> list[tuple[StepEvent, float]]:
    """Return events that ended after a moment, last first; events arrive nearly in the order of their ends."""
    return list(takewhile(lambda pair: pair[0].ended > since, reversed(events)))
