"""What to do after this run: where its time goes, the change to try, and what its profile aims at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.telemetry.report.words import count, number
from pipeline.telemetry.targets import MET, NOT_MEASURED, NOT_MET

_SIGNS = {MET: "✓", NOT_MET: "✗", NOT_MEASURED: "?"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """One aim of the profile."""

    figure: str
    aim: str
    value: str
    verdict: str
    sign: str  # beside the words


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What stands at the top."""

    reason: str  # empty where there is nothing to say
    change: str  # empty where there is nothing to try
    targets: tuple[Target, ...]
    aims: str  # how many are met, in words; empty without targets


def recommendation(told: Mapping[str, Any], without: str) -> Recommendation:
    """From the `throughput` of a run.json.

    Args:
        told: it, empty where the run kept no records.
        without: what to say then.
    """
    found = told.get("verdict") or {}
    targets = tuple(_target(one) for one in told.get("targets") or ())
    if not found:
        return Recommendation(reason=without, change="", targets=targets, aims=_aims(targets))
    change = str(found["change"])
    return Recommendation(
        reason=f"{found['reason']}.", change=f"{change[:1].upper()}{change[1:]}.", targets=targets, aims=_aims(targets)
    )


def _aims(targets: Sequence[Target]) -> str:
    if not targets:
        return ""
    missed = [one for one in targets if one.verdict == NOT_MET]
    unknown = sum(one.verdict == NOT_MEASURED for one in targets)
    met = len(targets) - len(missed) - unknown
    said = f"{met} of {count(len(targets), 'target')} of the profile {'is' if met == 1 else 'are'} met"
    said += f"; not met: {', '.join(one.figure for one in missed)}" if missed else ""
    return f"{said}; {unknown} not measured" if unknown else said


def _target(one: Mapping[str, Any]) -> Target:
    value, verdict = one["value"], str(one["verdict"])
    return Target(
        figure=str(one["figure"]),
        aim=str(one["aim"]),
        value="–" if value is None else number(float(value)),
        verdict=verdict,
        sign=_SIGNS.get(verdict, ""),
    )
