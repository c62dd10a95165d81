"""Figures held against what a profile aims at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.manifest import StepTargets, Targets
from pipeline.telemetry.measures import StepMeasures, gpu_use

MET, NOT_MET, NOT_MEASURED = "met", "not met", "not measured"

_LESS_IS_BETTER = ("vram_peak_percent", "call_p95_ms")
_MORE_IS_BETTER = ("rows_per_minute",)  # nobody is sorry for more than a range says


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One target."""

    figure: str  # STEP.FIGURE, or FIGURE of the whole run
    aim: str
    value: float | None  # None where it was not measured
    verdict: str  # met, not met, not measured


@dataclass(frozen=True, kw_only=True)
class Cards:
    """The GPUs of a run, all steps together; None where they were not sampled."""

    gpu_use_percent: float | None = None
    vram_peak_percent: float | None = None

    @classmethod
    def of(cls, calls: pa.Table, nodes: pa.Table) -> Cards:
        """From a run's records and the samples of its machines."""
        use = gpu_use(calls, nodes)
        full = [
            100 * card["memory_gb"] / card["total_gb"]
            for cards in nodes["gpus"].to_pylist()
            for card in cards or ()
            if card["memory_gb"] is not None and card["total_gb"]
        ]
        return cls(gpu_use_percent=None if use is None else 100 * use, vram_peak_percent=max(full, default=None))


def judged(targets: Targets, cards: Cards, steps: Sequence[StepMeasures]) -> list[Judged]:
    """Each target of a profile, those of the whole run first."""
    known = {step.step: step for step in steps}
    found = [_judge(name, aim, getattr(cards, name)) for name, aim in _said(targets)]
    for step, wanted in targets.steps.items():
        found += [_judge(f"{step}.{name}", aim, _figure(known.get(step), name)) for name, aim in _said(wanted)]
    return found


def _said(targets: Targets | StepTargets) -> Iterator[tuple[str, Any]]:
    return ((name, aim) for name, aim in targets if aim is not None and name != "steps")


def _figure(step: StepMeasures | None, name: str) -> float | None:
    if step is None:
        return None
    if name == "rows_per_minute":
        return None if step.steady_rows_per_s is None else 60 * step.steady_rows_per_s
    if name == "call_p95_ms":
        return step.call_ms[1] if step.calls else None
    return None if step.gpu_use is None else 100 * step.gpu_use


def _judge(figure: str, aim: float | tuple[float | None, float | None], value: float | None) -> Judged:
    name = figure.rpartition(".")[2]
    if isinstance(aim, tuple):
        least, most = aim
    else:
        least, most = (None, aim) if name in _LESS_IS_BETTER else (aim, None)
    upper = None if name in _MORE_IS_BETTER and least is not None else most
    if value is None:
        return Judged(figure=figure, aim=_aim(least, most), value=None, verdict=NOT_MEASURED)
    good = (least is None or value >= least) and (upper is None or value <= upper)
    return Judged(figure=figure, aim=_aim(least, most), value=round(value, 4), verdict=MET if good else NOT_MET)


def _aim(least: float | None, most: float | None) -> str:
    if least is None or most is None:
        return f"at most {most:,g}" if least is None else f"at least {least:,g}"
    return f"{least:,g} to {most:,g}"
