"""Samples added up: how many rows each step has seen, how fast, and what failed; and what the last seconds brought."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.failure import DECODE
from pipeline.media.units import Unit
from pipeline.sample import SET_UP, Reading, Sample
from pipeline.telemetry.live import Live


@dataclass
class StepFigures:
    """One step's totals."""

    rows: int = 0
    failures: int = 0
    busy: float = 0.0  # seconds inside calls, over all workers
    first: float = 0.0  # epoch seconds of the first call's start
    last: float = 0.0  # epoch seconds of the last call's end
    set_up: float = 0.0  # seconds of the slowest worker's set-up
    workers: set[str] = field(default_factory=set)
    phases: dict[str, float] = field(default_factory=dict)  # seconds

    def add(self, sample: Sample) -> None:
        """Count one packet."""
        self.rows += sample.rows
        self.failures += sample.failures
        self.busy += sample.seconds
        self.first = min(self.first or sample.started, sample.started)
        self.last = max(self.last, sample.started + sample.seconds)
        self.workers.add(sample.worker)
        for name, seconds in sample.phases.items():
            self.phases[name] = self.phases.get(name, 0.0) + seconds

    @property
    def rate(self) -> float:
        """Rows a second from the first call to the end of the last, over all workers; 0 before there are any."""
        return self.rows / (self.last - self.first) if self.last > self.first else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For run.json: seconds and rows as numbers."""
        return {
            "rows": self.rows,
            "errors": self.failures,
            "workers": len(self.workers),
            "rows_per_s": round(self.rate, 2),
            "busy_s": round(self.busy, 3),
            "set_up_s": round(self.set_up, 3),
            "ms_per_row": round(1000 * self.busy / self.rows, 3) if self.rows else None,
            "phases_s": {name: round(seconds, 3) for name, seconds in self.phases.items()},
        }


class Figures:
    """All steps' totals, and how far the whole is."""

    def __init__(self, units: Iterable[Unit] = (), waves: int = 1) -> None:
        """Begin.

        Args:
            units: that are gone through.
            waves: how often.
        """
        self._waves = waves
        self.steps: dict[str, StepFigures] = defaultdict(StepFigures)
        self.live = Live()
        self._bytes = {unit.name: sum(media.size for media in unit.media) or 1 for unit in units}
        self._all_bytes = waves * sum(self._bytes.values())
        self._done_bytes = 0.0
        self._done_rows: dict[str, int] = defaultdict(int)  # by worker, of what it has begun
        self._finished_rows = 0

    def add(self, samples: Iterable[Sample | Reading]) -> None:
        """Count samples as they come."""
        for sample in samples:
            if isinstance(sample, Reading):
                self.live.read(sample)
                continue
            if sample.step.endswith(SET_UP):
                figures = self.steps[sample.step.removesuffix(SET_UP)]
                figures.set_up = max(figures.set_up, sample.seconds)
                continue
            self.steps[sample.step].add(sample)
            self.live.add(sample)
            if sample.step == DECODE:
                self._advance(sample)

    def _advance(self, sample: Sample) -> None:
        self._done_rows[sample.worker] += sample.rows
        if sample.share:
            self._done_bytes += sample.share * self._bytes.get(sample.unit, 0)
            self._finished_rows += self._done_rows.pop(sample.worker)

    @property
    def expected_rows(self) -> int | None:
        """How many rows there will be, from the share of bytes decoded to the end; None before any are."""
        if not self._done_bytes:
            return None
        decoded = max(self.steps[DECODE].rows, round(self._finished_rows * self._all_bytes / self._done_bytes))
        return round(decoded / self._waves)

    def to_dict(self) -> Mapping[str, Any]:
        """For run.json."""
        return {name: figures.to_dict() for name, figures in self.steps.items()}
