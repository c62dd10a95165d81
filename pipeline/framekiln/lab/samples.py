"""The measurements of a bench as samples, for targets, gates and histories: cells, clips, objects of videos."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from framekiln.contract.errors import ConfigError
from framekiln.contract.row_errors import DECODE
from framekiln.lab.output.cells import Cell, CellResult
from framekiln.lab.output.film_rows import ClipRow, VideoRow
from framekiln.lab.output.results import BenchReport
from framekiln.planning.limits import Limit
from framekiln.planning.sample import INTERVAL_CALLS, PERCENTILES, Sample, Statistics, calls_for
from framekiln.profiling.stats.steps import StepStatistics
from framekiln.profiling.targets import MET, NOT_MEASURED, NOT_MET, Judgement, recorded_figures

FIGURES: Mapping[str, str] = {
    **dict.fromkeys(("p50", "p90", "p95", "p99", "mean"), "ms"),
    "rate": "items/s",
    **dict.fromkeys(("peak_gb", "reserved_gb", "weights_gb", "ram_gb"), "GB"),
    "gflop": "GFLOP",
    **dict.fromkeys(("drift", "j", "f"), ""),
}
"""Figures of a sample by their names in --fail-if and --target, with units."""
TIMED = ("ms", "items/s")
"""Units of figures whose changes have an interval."""


def samples(report: BenchReport) -> list[Sample]:
    """Return everything that a bench measured or tried, in order."""
    runs = groupby(report.video, lambda row: (row.model, row.video, row.object))
    objects = [_sample_runs(", ".join(filter(None, key)), list(group)) for key, group in runs]
    return [*map(sample_of, report.cells), *map(_sample_clip, report.extra.clips), *objects]


def sample_of(result: CellResult) -> Sample:
    """Return a cell as a sample."""
    cell, peak = result.cell, _to_gigabytes(getattr(result.memory, "peak", None))
    reserved = _to_gigabytes(getattr(result.memory, "reserved", None))
    work = Cell(batch=cell.batch, size=cell.size, frames=cell.frames)  # without how it is computed
    figures = {
        "rate": result.items_per_s,
        "peak_gb": peak,
        "reserved_gb": reserved,
        "weights_gb": _to_gigabytes(result.weights_bytes),
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
        figures=_collect_figures(result.latency_ms, figures),
    )


def _sample_clip(row: ClipRow) -> Sample:
    how = [row.scenario, *["no pools"] * (not row.pools), row.cell.title]
    return Sample(
        subject=f"{row.model}, {row.clip}",
        placement=", ".join(how),
        work=f"{row.model}, {row.clip}, {row.scenario}",
        outcome=row.outcome,
        why=row.why,
        latency=row.latency_ms,
        figures=_collect_figures(row.latency_ms, {"rate": row.fps}),
    )


def _sample_runs(subject: str, runs: Sequence[VideoRow]) -> Sample:
    last = runs[-1]  # a failed run is the last one of its object
    blank = Sample(subject=subject, placement=last.prompt, work=subject, outcome=last.outcome, why=last.why)
    ms = [value for run in runs if run.latency_ms is not None for value in run.latency_ms.values]
    if last.outcome != "ok" or not ms:
        return blank
    latency, fps = Statistics.of([value / 1000 for value in ms]), [run.fps for run in runs if run.fps is not None]
    figures = {
        "rate": len(fps) / sum(1 / value for value in fps),  # frames by time, over all runs of equal length
        "peak_gb": max((run.peak_gb for run in runs if run.peak_gb is not None), default=None),
        "ram_gb": last.ram_gb,
        "j": None if last.weights.startswith("dummy") else last.j,  # with random weights it means nothing
        "f": None if last.weights.startswith("dummy") else last.f,
    }
    return blank.model_copy(update={"latency": latency, "figures": _collect_figures(latency, figures)})


def sample_of_step(step: StepStatistics, record: Mapping[str, Any]) -> Sample:
    """Return a step of a run as a sample; `record` is its run.json, or empty."""
    known = {**record.get("steps", {}), DECODE: record.get("decode")}.get(step.step) or {}
    place = known.get("placement") or {}
    how = [step.device, *(f"{name} {place[name]}" for name in ("precision", "batch") if name in place)]
    figures = recorded_figures(step)
    return Sample(
        subject=step.step,
        placement=", ".join(how),
        work=f"{step.step} {known.get('fingerprint', '')}",
        figures=figures | ({"peak_gb": figures["vram"]} if "vram" in figures else {}),
    )


def _collect_figures(latency: Statistics | None, figures: Mapping[str, float | None]) -> dict[str, float]:
    times = {} if latency is None else {name: getattr(latency, name) for name in (*PERCENTILES, "mean")}
    times |= {} if latency is None else {"p50": latency.median}  # the median of any number of calls
    return {name: value for name, value in {**times, **figures}.items() if value is not None}


def _to_gigabytes(size: int | None) -> float | None:
    return None if size is None else size / 1e9


def verdicts(found: Sequence[Sample], targets: Sequence[Limit]) -> list[tuple[dict[str, Any], Judgement]]:
    """Return each target's row of profile_stats.json on each sample, and its verdict; `value`: None if unknown."""
    return [_judge(sample, target) for sample in found for target in targets]


def _judge(sample: Sample, target: Limit) -> tuple[dict[str, Any], Judgement]:
    count, needed = getattr(sample.latency, "count", 0), _count_calls(target)
    value = sample.figures.get(target.figure) if count >= needed else None
    verdict = NOT_MEASURED if value is None else MET if target.holds(value) else NOT_MET
    told = f"{sample.outcome}, {sample.why}"
    if value is not None:
        told = f"{value:{',.2f' if value >= 1 else '.3g'}} {FIGURES[target.figure]}".rstrip()
    elif sample.outcome == "ok":
        why = f": {target.figure} needs {needed} calls or frames, not {count}" if count < needed else ""
        told = f"not measured{why}"
    row: dict[str, Any] = {"subject": sample.subject, "placement": sample.placement, "target": target.text}
    failed = verdict != MET and sample.outcome != "unsupported"  # a sample that this machine cannot run has no target
    row |= {"value": value, "verdict": verdict}
    return row, Judgement(failed=failed, sentence=f"{target.text}: {sample.name}: {told}.", unclear=value is None)


def calls_needed(targets: Sequence[Limit], given: int | None, option: str) -> int:
    """Return the number of calls or frames that all figures of limits need; 0 without limits.

    Raises ConfigError: an option gives a smaller number.
    """
    most = max(targets, key=_count_calls, default=None)
    needed = 0 if most is None else _count_calls(most)
    if most is not None and given is not None and given < needed:
        problem = f"{most.text!r} needs {needed} calls or frames, and {option} is {given}"
        raise ConfigError(f"{problem}; leave {option} out.", code="FK-BENCH-TARGET")
    return needed


def _count_calls(limit: Limit) -> int:
    least = INTERVAL_CALLS if limit.relative and FIGURES[limit.figure] in TIMED else 1
    return max(least, calls_for(PERCENTILES[limit.figure]) if limit.figure in PERCENTILES else 1)
