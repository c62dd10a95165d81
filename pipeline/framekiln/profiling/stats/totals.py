"""Totals of a run: rows, errors and seconds of each step, and the progress over all files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from framekiln.contract.row_errors import DECODE
from framekiln.media.units import Unit
from framekiln.profiling.events import Reading, StepEvent
from framekiln.profiling.records import SET_UP
from framekiln.profiling.stats.live import LiveWindow
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
        self._waves, units = waves, list(units)
        self.steps: dict[str, StepTotals] = defaultdict(StepTotals)
        self.live = LiveWindow()
        self.notes: dict[str, str] = {}  # by step, why its model ran uncompiled in one of its processes
        self._bytes = {unit.name: sum(media.size for media in unit.media) or 1 for unit in units}
        self._files = {unit.name: len(unit.media) for unit in units}
        self._done_files = 0.0
        self._reached: dict[str, float] = {}  # by step, the largest share that was shown
        self._all_bytes = waves * sum(self._bytes.values())
        self._done_bytes = 0.0
        self._unfinished_rows: dict[str, int] = defaultdict(int)  # by worker, of the files it has started
        self._finished_rows = 0
        self._decoded: Counter[int] = Counter()  # by hash of the packet, 77 bytes each

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
            new = event if event.step != DECODE else self._once(event)
            self.steps[event.step].add(new)
            self.live.add(new)
            if event.step == DECODE:
                self._advance(new)

    def _once(self, event: StepEvent) -> StepEvent:
        """Return a packet's event, with the time only where a process that died had decoded the packet before."""
        key = hash((event.unit, event.start))
        self._decoded[key] += 1
        return event if self._decoded[key] <= self._waves else replace(event, rows=0, failures=0, share=0.0)

    def _advance(self, event: StepEvent) -> None:
        self._unfinished_rows[event.worker] += event.rows
        if event.share:
            self._done_bytes += event.share * self._bytes.get(event.unit, 0)
            self._done_files += event.share * self._files.get(event.unit, 0)
            self._finished_rows += self._unfinished_rows.pop(event.worker)

    @property
    def expected_rows(self) -> int | None:
        """Estimate of all rows, from the share of bytes in finished files; None before the first file is."""
        if not self._done_bytes:
            return None
        decoded = max(self.steps[DECODE].rows, round(self._finished_rows * self._all_bytes / self._done_bytes))
        return round(decoded / self._waves)

    @property
    def files(self) -> tuple[int, int]:
        """Files that are decoded, and all files of the run; with several waves, the mean over them."""
        return int(self._done_files / self._waves + 1e-6), sum(self._files.values())

    def share(self, step: str) -> float:
        """Return the share of the files' bytes that a step is done with, 0 to 1; it never falls."""
        decoded = self.steps[DECODE].rows / self._waves
        followed = min(1.0, self.steps[step].rows / decoded) if decoded and step != DECODE else 1.0
        share = followed * self._done_bytes / max(1, self._all_bytes)
        self._reached[step] = max(min(1.0, share), self._reached.get(step, 0.0))
        return self._reached[step]

    def to_dict(self) -> Mapping[str, Any]:
        """Return the totals of each step as run.json stores them."""
        return {name: step.to_dict() for name, step in self.steps.items()}
