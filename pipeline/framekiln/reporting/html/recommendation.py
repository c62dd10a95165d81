"""The report's first lines: the bottleneck, the change to try, and the profile's targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framekiln.profiling.targets import NOT_MEASURED, NOT_MET
from framekiln.reporting.formatting import count


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
