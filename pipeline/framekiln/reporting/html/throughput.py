"""The bottleneck of a run, and the phases inside each step's packets: where the time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from framekiln.profiling.advice import busiest_step
from framekiln.profiling.export.trace_events import PHASES
from framekiln.reporting.formatting import duration
from framekiln.reporting.html.recorded.activity import OTHER


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """The step that limits a run."""

    text: str  # a sentence or two
    step: str = ""  # empty without a bottleneck
    idle: bool = False  # no row came out of any step, so that there is nothing to try


def bottleneck(figures: Mapping[str, Any], profile: Mapping[str, Any]) -> Bottleneck:
    """Return the bottleneck of a run, by `figures` and `throughput` of its run.json.

    Without records it is the step with the most busy time for each of its workers, since no run is faster.
    """
    if profile:
        verdict = profile["verdict"]
        opening = f"The bottleneck is {verdict['step']}. " if verdict["rule"] == "busy" else ""
        return Bottleneck(text=f"{opening}{verdict['reason']}: {verdict['change']}.", step=verdict["step"])
    slowest = busiest_step(figures)
    if slowest is None:
        return Bottleneck(text="No step had anything to do.", idle=True)
    if not any(step["rows"] for step in figures.values()):  # time on unreadable files does not show what is slow
        return Bottleneck(text="No row came out of any step: there is no bottleneck.", idle=True)
    workers = figures[slowest]["workers"]
    subject = "its worker was" if workers == 1 else f"each of its {workers:,} workers was"
    load = duration(figures[slowest]["busy_s"] / max(1, workers))
    text = f"The bottleneck is {slowest}: {subject} busy for {load}, longer than for any other step."
    return Bottleneck(text=text, step=slowest)


def phase_shares(profile: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return for every step of run.json's `throughput` the shares of its phases, 0 to 1, in drawing order."""
    shares = {}
    for name, step in (profile.get("steps") or {}).items():
        seconds = {OTHER if phase == "other" else phase: float(value) for phase, value in step["phases"].items()}
        whole = sum(seconds.values()) or 1.0
        shares[name] = {phase: seconds[phase] / whole for phase in (*PHASES, OTHER) if seconds.get(phase, 0) > 0}
    return shares


def phase_names(shares: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the phases that occur in any step, in drawing order."""
    return [phase for phase in (*PHASES, OTHER) if any(phase in by_phase for by_phase in shares.values())]
