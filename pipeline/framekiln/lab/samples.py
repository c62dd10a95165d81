"""The measurements of a bench as samples, for targets, gates and histories: cells, clips, objects of videos.

Targets are for the latency of a call or a frame, as `p50<16.67,p95<20,p99<25` in ms, or a named set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import TypeAdapter

from framekiln.contract.errors import ConfigError
from framekiln.lab.clips.measure import ClipRow
from framekiln.lab.output.cells import Cell, CellResult
from framekiln.lab.output.results import BenchReport
from framekiln.lab.sav.measure import VideoRow
from framekiln.planning.sample import PERCENTILES, Sample, Statistics, calls_for
from framekiln.profiling.targets import MET, NOT_MEASURED, NOT_MET, Limit, parse_limits

FIGURES: Mapping[str, str] = {
    **dict.fromkeys(("p50", "p90", "p95", "p99", "mean"), "ms"),
    "rate": "items/s",
    **dict.fromkeys(("peak_gb", "reserved_gb", "weights_gb", "ram_gb"), "GB"),
    "gflop": "GFLOP",
    **dict.fromkeys(("drift", "j", "f"), ""),
}
"""Figures of a sample by the names that --fail-if takes, with their units."""

_TAIL = {"p50": 1.0, "p95": 1.2, "p99": 1.5}  # of a frame's period: half of the frames in time, few that are late
SETS = {
    name: [Limit(figure=figure, number=round(1000 / rate * by, 2)) for figure, by in _TAIL.items()]
    for name, rate in {"1080p60": 60, "4k30": 30, "stereo60": 60}.items()
}
"""Targets by the names of sets; 60 frames a second give p50<16.67, p95<20, p99<25."""


def samples(report: BenchReport) -> list[Sample]:
    """Return all that a bench measured or tried, in its order."""
    return [*map(sample_of, report.cells), *map(_of_clip, clip_rows(report)), *_of_videos(video_rows(report))]


def clip_rows(report: BenchReport) -> list[ClipRow]:
    """Return the rows of clips."""
    return TypeAdapter(list[ClipRow]).validate_python(report.extra.get("clips", []))


def video_rows(report: BenchReport) -> list[VideoRow]:
    """Return the rows of videos."""
    return TypeAdapter(list[VideoRow]).validate_python(report.video)


def sample_of(result: CellResult) -> Sample:
    """Return a cell as a sample."""
    cell, peak = result.cell, _gigabytes(getattr(result.memory, "peak", None))
    reserved = _gigabytes(getattr(result.memory, "reserved", None))
    work = Cell(batch=cell.batch, size=cell.size, frames=cell.frames)  # without how it is computed
    figures = {
        "rate": result.items_per_s,
        "peak_gb": peak,
        "reserved_gb": reserved,
        "weights_gb": _gigabytes(result.weights_bytes),
        "gflop": None if result.flops is None else result.flops / 1e9,
        "drift": getattr(result.drift, "rel_l2", None),
    }
    return Sample(
        subject=result.model,
        placement=cell.title,
        work=f"{result.model}, {work.title}",
        outcome=result.outcome,
        why=result.why,
        batch=result.items or cell.batch,
        calls=0 if result.latency_ms is None else result.latency_ms.count,
        seconds=result.items / result.items_per_s if result.items_per_s else 0.0,
        peak_gb=peak,
        reserved_gb=reserved,
        latency=result.latency_ms,
        figures=_measured(result.latency_ms, figures),
    )


def _of_clip(row: ClipRow) -> Sample:
    how = [row.scenario, *["no pools"] * (not row.pools), row.cell.title]
    return Sample(
        subject=f"{row.model}, {row.clip}",
        placement=", ".join(how),
        work=f"{row.model}, {row.clip}, {row.scenario}",
        outcome=row.outcome,
        why=row.why,
        latency=row.latency_ms,
        figures=_measured(row.latency_ms, {"rate": row.fps}),
    )


def _of_videos(rows: Sequence[VideoRow]) -> Iterator[Sample]:
    """Yield a sample for each object of each model: all its runs together."""
    for key, runs in groupby(rows, lambda row: (row.model, row.video, row.object)):
        yield _of_runs(", ".join(part for part in key if part), list(runs))


def _of_runs(subject: str, runs: Sequence[VideoRow]) -> Sample:
    last = runs[-1]  # a run that failed is the last one of its object
    blank = Sample(subject=subject, placement=last.prompt, work=subject, outcome=last.outcome, why=last.why)
    ms = [value for run in runs if run.latency_ms is not None for value in run.latency_ms.values]
    if last.outcome != "ok" or not ms:
        return blank
    latency, fps = Statistics.of([value / 1000 for value in ms]), [run.fps for run in runs if run.fps is not None]
    figures = {
        "rate": len(fps) / sum(1 / value for value in fps),  # frames by time, over all runs of equal length
        "peak_gb": max((run.peak_gb for run in runs if run.peak_gb is not None), default=None),
        "ram_gb": last.ram_gb,
        "j": None if last.weights.startswith("dummy") else last.j,  # of random weights it means nothing
        "f": None if last.weights.startswith("dummy") else last.f,
    }
    return blank.model_copy(update={"latency": latency, "figures": _measured(latency, figures)})


def _measured(latency: Statistics | None, figures: Mapping[str, float | None]) -> dict[str, float]:
    """Return the figures that there are, those of the latency first."""
    times = {} if latency is None else {name: getattr(latency, name) for name in (*PERCENTILES, "mean")}
    times |= {} if latency is None else {"p50": latency.median}  # of however few calls
    return {name: value for name, value in {**times, **figures}.items() if value is not None}


def _gigabytes(size: int | None) -> float | None:
    return None if size is None else size / 1e9


@dataclass(frozen=True, kw_only=True)
class TargetVerdict:
    """The verdict on a sample and a target."""

    sample: Sample
    target: Limit  # of a percentile in ms

    @property
    def ms(self) -> float | None:
        """The sample's percentile; None where there were too few calls."""
        found: float | None = getattr(self.sample.latency, self.target.figure, None)
        return found

    @property
    def verdict(self) -> str:
        """The result in words: met, not met, not measured."""
        return NOT_MEASURED if self.ms is None else MET if self.ms < self.target.number else NOT_MET

    @property
    def failed(self) -> bool:
        """True if it is not known to be met. A sample that this machine cannot run has no target."""
        return self.verdict != MET and self.sample.outcome != "unsupported"

    @property
    def sentence(self) -> str:
        """The result in a sentence."""
        start = f"{self.target.text}: {self.sample.name}: "
        if self.ms is not None:
            return f"{start}{self.ms:.2f} ms."
        if self.sample.outcome != "ok":
            return f"{start}{self.sample.outcome}, {self.sample.why}."
        count = getattr(self.sample.latency, "count", 0)
        return f"{start}not measured: {self.target.figure} needs {_calls(self.target)} calls or frames, not {count}."

    def row(self) -> dict[str, Any]:
        """Return it as profile_stats.json has it."""
        known = {"subject": self.sample.subject, "placement": self.sample.placement}
        return {**known, "target": self.target.text, "ms": self.ms, "verdict": self.verdict}


def verdicts(found: Sequence[Sample], targets: Sequence[Limit]) -> list[TargetVerdict]:
    """Return each target's verdict on each sample."""
    return [TargetVerdict(sample=sample, target=target) for sample in found for target in targets]


def calls_needed(targets: Sequence[Limit], given: int | None, option: str) -> int:
    """Return the number of calls or frames from which all targets are known; 0 without targets.

    Raises:
        ConfigError: the number that an option gives is too small.
    """
    most = max(targets, key=_calls, default=None)
    if most is None:
        return 0
    if given is not None and given < _calls(most):
        raise ConfigError(
            f"--target {most.text!r} needs {_calls(most)} calls or frames, and {option} is {given}; leave {option} "
            "out.",
            code="FK-BENCH-TARGET",
        )
    return _calls(most)


def _calls(target: Limit) -> int:
    """Return the calls or frames that it takes to know."""
    return calls_for(PERCENTILES[target.figure])


def parse_targets(text: str) -> list[Limit]:
    """Return the targets in a list, or of a named set.

    Raises:
        ConfigError: a word is neither a target nor a set.
    """

    def is_known(limit: Limit) -> bool:
        return limit.step is None and limit.sign == "<" and limit.figure in PERCENTILES

    return parse_limits(text, is_known, _unknown, SETS)


def _unknown(word: str) -> ConfigError:
    return ConfigError(
        f"--target {word!r} is no target; write p50<16.67 with one of {', '.join(PERCENTILES)} and ms, or "
        f"{', '.join(SETS)}.",
        code="FK-BENCH-TARGET",
    )
