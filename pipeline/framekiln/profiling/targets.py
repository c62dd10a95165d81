"""Targets compared with a run, and the results of conditions and targets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from framekiln.planning.limits import Limit
from framekiln.profiling.stats.speed import QUANTILES, gpu_use, ms_per_row
from framekiln.profiling.stats.steps import StepStatistics

MET, NOT_MET, NOT_MEASURED = "met", "not met", "not measured"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The result of one condition on a step, or of a target on a sample."""

    failed: bool
    sentence: str
    unclear: bool = False  # beyond the threshold but within chance: neither failed nor passed
    missing: bool = False  # failed, since the base has a figure that was not measured now

    @property
    def outcome(self) -> str:
        if self.missing:
            return "Not measured"
        return "Failed" if self.failed else "Inconclusive" if self.unclear else "Passed"


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """One target and its measurement."""

    figure: str  # STEP.FIGURE, or FIGURE for the whole run
    aim: str  # sign and number
    value: float | None  # None if not measured
    verdict: str  # met, not met, not measured


def figures_of(totals: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a step in its sums, as run.json has them, with each phase in ms a row as `phase NAME`."""
    keys = {"rows": "rows", "ms_row": "ms_per_row", "workers": "workers", "set_up": "set_up_s", "errors": "errors"}
    figures = {name: totals[key] for name, key in keys.items() if totals.get(key) is not None}
    if rate := totals.get("rows_per_s"):  # 0: the step never worked
        figures["rate"] = rate
    if rows := totals.get("rows"):
        phases = totals.get("phases_s") or {}
        figures |= {f"phase {name}": ms_per_row(seconds, rows) or 0.0 for name, seconds in phases.items()}
    return figures


def recorded_figures(step: StepStatistics) -> dict[str, float]:
    """Return the figures of a step that its records give; they have no errors."""
    figures = figures_of(step.totals.to_dict())
    figures.pop("errors")
    times = dict(zip(QUANTILES, step.row_ms, strict=True)) if step.calls else {}
    found = times | {"vram": step.vram_peak_gb, "gpu_use": step.gpu_use and 100 * step.gpu_use}
    return figures | {name: value for name, value in found.items() if value is not None}


def gpu_figures(calls: pa.Table, nodes: pa.Table) -> dict[str, float | None]:
    """Return the GPU figures of targets, all steps together; None if they were not sampled."""
    use = gpu_use(calls, nodes)
    filled = [
        100 * gpu["memory_gb"] / gpu["total_gb"]
        for gpus in nodes["gpus"].to_pylist()
        for gpu in gpus or ()
        if gpu["memory_gb"] is not None and gpu["total_gb"]
    ]
    return {"gpu_use": None if use is None else 100 * use, "vram_percent": max(filled, default=None)}


def compare_targets(
    targets: Sequence[Limit], gpus: Mapping[str, float | None], steps: Sequence[StepStatistics]
) -> list[TargetResult]:
    """Compare each target with its measurement; one without a step holds for every step, or for the run's GPUs."""
    return [result for target in targets for result in _compare(target, gpus, steps)]


def _compare(
    target: Limit, gpus: Mapping[str, float | None], steps: Sequence[StepStatistics]
) -> Iterator[TargetResult]:
    known = {f"{step.step}.{target.figure}": recorded_figures(step).get(target.figure) for step in steps}
    if target.step is not None:
        name = f"{target.step}.{target.figure}"
        known = {name: known.get(name)}
    elif target.figure in gpus:
        known = {target.figure: gpus[target.figure]}
    for figure, value in known.items():
        verdict = NOT_MEASURED if value is None else MET if target.holds(value) else NOT_MET
        shown = None if value is None else round(value, 4)
        yield TargetResult(figure=figure, aim=f"{target.sign} {target.number:,g}", value=shown, verdict=verdict)
