"""Totals of a run: rows, errors and seconds of each step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from framekiln.media.units import Unit
from framekiln.profiling.events import Reading, StepEvent
from framekiln.profiling.records import SET_UP
from framekiln.profiling.stats.live import LiveWindow
from framekiln.profiling.stats.progress import Progress
from framekiln.profiling.stats.speed import StepTotals


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
