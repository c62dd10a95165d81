"""Records of a run that was never made, so that the truth about its figures is known."""

from __future__ import annotations

import json

from framekiln.profiling import node_metrics
from framekiln.profiling.advice import bottleneck
from framekiln.profiling.records import CALL, HAND_ON, PACKET, SET_UP, Record, to_table
from framekiln.profiling.stats.speed import others_use
from framekiln.profiling.stats.steps import step_statistics

LOOP = 10.0  # seconds from one packet of a process to its next
GPU = {"device": "cuda"}


class Made:
    """Records of a run: each step has a process, and a packet in each loop."""

    def __init__(self):
        self.lines = []

    def add(self, worker, **facts):
        self.lines.append(json.loads(Record(**facts).line("0", worker)))

    def step(self, name, busy, wait=0.0, seal=0.0, packets=6, worker=None, **facts):
        """A step that works `busy` seconds of each loop."""
        phases, worker = facts.pop("phases", {"infer": busy}), worker or f"h:{name}"
        ready, device = facts.get("at", 0.0) - 0.5, facts.get("device", "cpu")
        length = facts.pop("set_up", 0.5)
        self.add(worker, kind=SET_UP, step=name, started=ready - length, seconds=length, device=device)
        for i in range(packets):
            place = {"unit": facts.get("unit", "u"), "start": 10 * i, "stop": 10 * i + 10, "step": name}
            about = place | {"device": facts.get("device", "cpu"), "rows": 10, "cost": 1000, "seconds": busy}
            begin = LOOP * i + facts.get("at", 0.0)
            memory = (1.0, 2.0, 1.0 + i) if facts.get("device") == "cuda" else None
            durations = phases | {"wait": wait if i else 99.0}
            self.add(worker, kind=PACKET, started=begin, durations=durations, memory=memory, **about)
            if name != "decode":
                self.add(worker, kind=CALL, started=begin, durations=phases, memory=memory, **about)
            self.add(worker, kind=HAND_ON, started=begin + busy, durations={"seal": seal}, unit="u", step=name)
        return self

    def measured(self, samples=None):
        return {one.step: one for one in step_statistics(to_table(self.lines), samples)}

    def bottleneck(self, cpu=None, rooms=None, own=None):
        """What is said of it on a machine whose cores are used so much, in percent, all the time; `own` by the run."""
        told = {"run": "0", "node": "h", "cpu_percent": cpu, "own_cpu_percent": own, "gpus": []}
        samples = [told | {"time": 0.25 * i} for i in range(400)]
        calls, nodes = to_table(self.lines), node_metrics.to_table(samples if cpu is not None else [])
        return bottleneck(step_statistics(calls, nodes), rooms or {}, others_use(calls, nodes))
