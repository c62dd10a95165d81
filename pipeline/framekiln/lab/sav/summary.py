"""Figures of videos as CSV, and models side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

from framekiln.lab.output.results import write_table
from framekiln.lab.sav.measure import VideoRow

_PLAIN = ("model", "weights", "device", "prompt", "video", "object", "run", "outcome", "why", "first_frame", "frames")
_FIGURES = ("scored_frames", "fps", "first_ms", "peak_gb", "ram_gb", "j", "f")
_LATENCY = ("mean", "median", "std", "min", "max", "p50", "p90", "p95", "p99")


@dataclass(frozen=True, kw_only=True)
class ModelSummary:
    """A model over all objects that it tracked; each object counts once."""

    model: str
    weights: str
    objects: int
    runs: int  # that succeeded
    failed: int  # runs that did not
    fps: float | None = None  # median over runs
    fps_std: float | None = None  # over runs; None for one
    median_ms: float | None = None  # of a frame after the prompted one: the median of the runs' medians
    peak_gb: float | None = None
    j: float | None = None  # means over objects, 0 to 1
    f: float | None = None

    @property
    def j_and_f(self) -> float | None:
        """The mean of J and F; None without either."""
        return None if self.j is None or self.f is None else (self.j + self.f) / 2


def summarize(rows: Sequence[VideoRow]) -> list[ModelSummary]:
    """Return a summary of each model, in the order of the rows."""
    names = dict.fromkeys(row.model for row in rows)
    return [_summary([row for row in rows if row.model == name]) for name in names]


def _summary(rows: Sequence[VideoRow]) -> ModelSummary:
    good = [row for row in rows if row.outcome == "ok"]
    firsts = {(row.video, row.object): row for row in reversed(good)}
    fps = [row.fps for row in good if row.fps is not None]
    medians = [row.latency_ms.median for row in good if row.latency_ms is not None]
    return ModelSummary(
        model=rows[0].model,
        weights=rows[0].weights,
        objects=len(firsts),
        runs=len(good),
        failed=len(rows) - len(good),
        fps=median(fps) if fps else None,
        fps_std=stdev(fps) if len(fps) > 1 else None,
        median_ms=median(medians) if medians else None,
        peak_gb=max((row.peak_gb for row in good if row.peak_gb is not None), default=None),
        j=_mean(row.j for row in firsts.values()),
        f=_mean(row.f for row in firsts.values()),
    )


def write_video_csv(rows: Sequence[VideoRow], path: Path) -> Path:
    """Write a line for each run, with latencies in ms and J and F from 0 to 1.

    Raises:
        OutputError: the file cannot be written.
    """
    lines = [
        {name: getattr(row, name) for name in (*_PLAIN, *_FIGURES)}
        | {f"{name}_ms": getattr(row.latency_ms, name, None) for name in _LATENCY}
        for row in rows
    ]
    return write_table(path, lines)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
