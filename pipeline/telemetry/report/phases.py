"""What each step did inside its packets, as bars to compare, with the times of its calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.telemetry.report.activity import OTHER
from pipeline.telemetry.report.words import duration, number, share
from pipeline.telemetry.timeline import PHASES

_LABELLED = 0.12  # of the bar: in less there is no room for a word


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a step's bar."""

    phase: str
    share: float  # 0 to 1
    said: str
    label: str  # what stands in it; empty where there is no room


@dataclass(frozen=True, kw_only=True)
class StepPhases:
    """One step."""

    step: str
    parts: tuple[Part, ...]
    by_phase: Mapping[str, str]
    busy: str
    call: tuple[str, ...]  # p50, p95, p99
    row: tuple[str, ...]
    rate: str
    calls: str
    retries: str
    vram: str
    gpu: str


def phases(told: Mapping[str, Any]) -> tuple[StepPhases, ...]:
    """Every step that a packet went through, from the `throughput` of a run.json."""
    return tuple(_step(name, step) for name, step in (told.get("steps") or {}).items())


def names(steps: tuple[StepPhases, ...]) -> tuple[str, ...]:
    """Phases that occur, in the order in which they are drawn."""
    return tuple(name for name in (*PHASES, OTHER) if any(part.phase == name for step in steps for part in step.parts))


def _step(name: str, step: Mapping[str, Any]) -> StepPhases:
    known = {OTHER if phase == "other" else phase: float(value) for phase, value in step["phases"].items()}
    whole = sum(known.values()) or 1.0
    parts = tuple(
        Part(
            phase=phase,
            share=known[phase] / whole,
            said=share(known[phase], whole),
            label=f"{phase} {share(known[phase], whole)}" if known[phase] / whole >= _LABELLED else "",
        )
        for phase in (*PHASES, OTHER)
        if known.get(phase, 0) > 0
    )
    steady = step["steady_rows_per_s"]
    return StepPhases(
        step=name,
        parts=parts,
        by_phase={part.phase: part.said for part in parts},
        busy=duration(step["seconds"]),
        call=tuple(duration(ms / 1000) if step["calls"] else "–" for ms in step["call_ms"]),
        row=tuple(duration(ms / 1000) if step["calls"] else "–" for ms in step["row_ms"]),
        rate=number(float(step["rows_per_s"] if steady is None else steady)),
        calls=number(step["calls"]),
        retries=number(step["retries"]),
        vram="–" if step["vram_peak_gb"] is None else f"{number(float(step['vram_peak_gb']))} GB",
        gpu="–" if step["gpu_use"] is None else share(step["gpu_use"], 1.0),
    )
