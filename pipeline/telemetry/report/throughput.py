"""Where the time went: which step to give more workers to, or another setting, before anything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pipeline.telemetry.report.words import count, duration, number, share


@dataclass(frozen=True, kw_only=True)
class StepLine:
    """One step's line of the table, in words, and how long its bars are."""

    name: str
    rows: str
    rate: str  # rows a second while it was at work
    cost: str  # time inside calls for each row
    workers: str
    set_up: str
    errors: int
    busy: str  # its share of all workers' time inside calls
    busy_share: float  # 0 to 1
    phases: str
    steady: str  # rows a second without start and end
    own: str  # of its processes' time: in the step, waiting for input, handing on
    bottleneck: bool = False


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """All steps, and the one that holds the others up."""

    lines: tuple[StepLine, ...]
    verdict: str
    idle: bool = False  # whether no row came out, so that there is nothing to try


def throughput(figures: Mapping[str, Any], told: Mapping[str, Any] = MappingProxyType({})) -> Throughput:
    """The `figures` of run.json as lines, with what `told`, its `throughput`, adds from the run's records.

    Without records, the bottleneck is the step with the most busy time for each of its workers: no run is faster.
    """
    if told:
        found, steps = told["verdict"], told["steps"]
        whole = sum(step["busy_s"] for step in figures.values())
        lines = tuple(
            _line(name, step, whole, name == found["step"], steps.get(name)) for name, step in figures.items()
        )
        named = f"The bottleneck is {found['step']}. " if found["rule"] == "busy" else ""
        return Throughput(lines=lines, verdict=f"{named}{found['reason']}: {found['change']}.")
    busy = sum(step["busy_s"] for step in figures.values())
    loads = {name: step["busy_s"] / max(1, step["workers"]) for name, step in figures.items()}
    slowest = max((name for name in loads if loads[name]), key=lambda name: loads[name], default=None)
    lines = tuple(_line(name, step, busy, name == slowest) for name, step in figures.items())
    if slowest is None:
        return Throughput(lines=lines, verdict="No step had anything to do.", idle=True)
    if not any(step["rows"] for step in figures.values()):  # time on files that fail says nothing of what is slow
        plain = tuple(replace(line, bottleneck=False) for line in lines)
        return Throughput(lines=plain, verdict="No row came out of any step: there is no bottleneck.", idle=True)
    step = figures[slowest]
    each = "its worker was" if step["workers"] == 1 else f"each of its {step['workers']:,} workers was"
    verdict = (
        f"The bottleneck is {slowest}: {each} busy for {duration(loads[slowest])}, longer than for any other step."
    )
    return Throughput(lines=lines, verdict=verdict)


def _line(
    name: str, step: Mapping[str, Any], busy: float, slowest: bool, told: Mapping[str, Any] | None = None
) -> StepLine:
    cost = step.get("ms_per_row")
    return StepLine(
        name=name,
        rows=number(step["rows"]),
        rate=number(float(step["rows_per_s"])),
        cost="–" if cost is None else duration(cost / 1000),
        workers=number(step["workers"]),
        set_up=duration(step["set_up_s"]) if step["set_up_s"] else "–",
        errors=step["errors"],
        busy=share(step["busy_s"], busy),
        busy_share=step["busy_s"] / busy if busy else 0.0,
        phases=_phases(step.get("phases_s") or {}, step["busy_s"]),
        steady=number(float(told["steady_rows_per_s"])) if told and told["steady_rows_per_s"] is not None else "–",
        own=" / ".join(share(told[key], 1.0) for key in ("busy", "starved", "held")) if told else "–",
        bottleneck=slowest,
    )


def _phases(phases: Mapping[str, float], busy: float) -> str:
    """What of the calls' time each phase took, the longest first; phases under a percent are left out."""
    ordered = sorted(phases.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {share(seconds, busy)}" for name, seconds in ordered if busy and seconds / busy >= 0.01)


def run_speed(record: Mapping[str, Any]) -> str:
    """How fast the whole run was, all steps together, start to end; empty when it decoded nothing."""
    rows = (record["figures"].get("decode") or {}).get("rows", 0)
    if not rows or not record["seconds"]:
        return ""
    speed = number(rows / record["seconds"])
    return f"{count(rows, 'frame')} in {duration(record['seconds'])}: {speed} a second, starting Ray included"
