"""The measurements of a bench as samples, for targets, gates and histories: cells, clips, objects of videos."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from pydantic import TypeAdapter

from framekiln.lab.clips.measure import ClipRow
from framekiln.lab.output.cells import Cell, CellResult
from framekiln.lab.output.results import BenchReport
from framekiln.lab.sav.measure import VideoRow
from framekiln.planning.sample import PERCENTILES, Sample, Statistics

FIGURES: Mapping[str, str] = {
    **dict.fromkeys(("p50", "p90", "p95", "p99", "mean"), "ms"),
    "rate": "items/s",
    **dict.fromkeys(("peak_gb", "reserved_gb", "weights_gb", "ram_gb"), "GB"),
    "gflop": "GFLOP",
    **dict.fromkeys(("drift", "j", "f"), ""),
}
"""Figures of a sample by the names that --fail-if takes, with their units."""


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
