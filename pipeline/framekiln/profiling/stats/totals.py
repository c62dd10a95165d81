"""Totals of a run: rows, errors and seconds of each step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from framekiln.media.units import Unit
from framekiln.profiling.events import Reading, StepEvent
from framekiln.profiling.records import SET_UP
from framekiln.profiling.stats.live import LiveWindow
from framekiln.profiling.stats.progress import Progress
from framekiln.profiling.stats.speed import ms_per_row, rows_per_s


@dataclass
class StepTotals:
    """One step's totals over all workers."""

    rows: int = 0
    failures: int = 0
    busy: float = 0.0  # seconds inside packets, without the wait for others in the model
    first: float = 0.0  # start of the first call, seconds since the epoch
    last: float = 0.0  # end of the last call, seconds since the epoch
    set_up: float = 0.0  # seconds of the slowest worker's set-up
    workers: set[str] = field(default_factory=set)
    phases: dict[str, float] = field(default_factory=dict)  # seconds

    def add(self, event: StepEvent) -> None:
        """Count one packet."""
        self.rows += event.rows
        self.failures += event.failures
        self.busy += event.seconds - event.phases.get("queue", 0.0)
        self.first = min(self.first or event.started, event.started)
        self.last = max(self.last, event.started + event.seconds)
        self.workers.add(event.worker)
        for name, seconds in event.phases.items():
            self.phases[name] = self.phases.get(name, 0.0) + seconds

    @property
    def rate(self) -> float:
        """Rows a second from the start of the first call to the end of the last; 0 before the first call."""
        return rows_per_s(self.rows, self.last - self.first)

    def to_dict(self) -> dict[str, Any]:
        """Return the totals as run.json stores them."""
        cost = ms_per_row(self.busy, self.rows)
        return {
            "rows": self.rows,
            "errors": self.failures,
            "workers": len(self.workers),
            "rows_per_s": round(self.rate, 2),
            "busy_s": round(self.busy, 3),
            "set_up_s": round(self.set_up, 3),
            "ms_per_row": None if cost is None else round(cost, 3),
            "phases_s": {name: round(seconds, 3) for name, seconds in self.phases.items()},
        }


class RunTotals:
    """Totals of all steps, and the progress of the run."""

    def __init__(self, units: Iterable[Unit] = (), waves: int = 1) -> None:
        """Start at zero, for a run that processes these units so many times."""
        self.steps: dict[str, StepTotals] = defaultdict(StepTotals)
        self.live = LiveWindow()
        self.progress = Progress(units, waves)
        self.engine = ""  # owner of the processes; empty where nothing was computed
        self.notes: dict[str, str] = {}  # by step, why its model ran uncompiled in one of its processes

    def add(self, events: Iterable[StepEvent | Reading]) -> None:
        """Count events as they arrive."""
        for event in events:
            if isinstance(event, Reading):
                self.live.read(event)
                continue
            if event.note:
                self.notes.setdefault(event.step, event.note)
            if event.kind == SET_UP:
                step = self.steps[event.step]
                step.set_up = max(step.set_up, event.seconds)
                continue
            new = self.progress.add(event)
            self.steps[event.step].add(new)
            self.live.add(new)

    def to_dict(self) -> Mapping[str, Any]:
        """Return the totals of each step as run.json stores them."""
        return {name: step.to_dict() for name, step in self.steps.items()}
