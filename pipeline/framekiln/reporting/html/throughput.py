"""The report's first lines, by run.json: the bottleneck, the change to try, targets, and the phases of each step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from framekiln.profiling.advice import busiest_step
from framekiln.profiling.export.trace_events import PHASES
from framekiln.profiling.targets import NOT_MEASURED, NOT_MET
from framekiln.reporting.formatting import count, duration
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


def recommendation(throughput: Mapping[str, Any], fallback: str) -> tuple[str, str]:
    """Return the reason and the change to try, a sentence each; either may be empty.

    `throughput` is that of a run.json, empty where the run kept no records; then the reason is `fallback`.
    """
    if not (advice := throughput.get("verdict")):
        return fallback, ""
    change = str(advice["change"])
    return f"{advice['reason']}.", f"{change[:1].upper()}{change[1:]}." if change else ""


def targets_met(targets: Sequence[Mapping[str, Any]]) -> str:
    """Return how many targets of a run.json are met, and which are not."""
    missed = [target["figure"] for target in targets if target["verdict"] == NOT_MET]
    unknown = sum(target["verdict"] == NOT_MEASURED for target in targets)
    met = len(targets) - len(missed) - unknown
    text = f"{met} of {count(len(targets), 'target')} of the profile {'is' if met == 1 else 'are'} met"
    text += f"; not met: {', '.join(missed)}" if missed else ""
    return f"{text}; {unknown} not measured" if unknown else text
