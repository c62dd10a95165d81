"""Targets for the latency of a call or a frame, as `p50<16.67,p95<20,p99<25` in ms, or a named set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from framekiln.contract.errors import ConfigError
from framekiln.planning.sample import PERCENTILES, Sample, calls_for
from framekiln.profiling.targets import MET, NOT_MEASURED, NOT_MET

_TAIL = {"p50": 1.0, "p95": 1.2, "p99": 1.5}  # of a frame's period: half of the frames in time, few that are late
_FORM = re.compile(r"(\w+)\s*<\s*(\d+(?:\.\d+)?)")
SETS = {"1080p60": 60, "4k30": 30, "stereo60": 60}
"""Frames a second by the names of sets; 60 a second give p50<16.67, p95<20.00, p99<25.00."""


@dataclass(frozen=True, kw_only=True)
class LatencyTarget:
    """An upper limit of a percentile."""

    percentile: str  # of PERCENTILES
    ms: float

    @property
    def text(self) -> str:
        """The target as it is written."""
        return f"{self.percentile}<{self.ms:g}"

    @property
    def calls(self) -> int:
        """Calls or frames that it takes to know."""
        return calls_for(PERCENTILES[self.percentile])


@dataclass(frozen=True, kw_only=True)
class TargetVerdict:
    """The verdict on a sample and a target."""

    sample: Sample
    target: LatencyTarget

    @property
    def ms(self) -> float | None:
        """The sample's percentile; None where there were too few calls."""
        found: float | None = getattr(self.sample.latency, self.target.percentile, None)
        return found

    @property
    def verdict(self) -> str:
        """The result in words: met, not met, not measured."""
        return NOT_MEASURED if self.ms is None else MET if self.ms < self.target.ms else NOT_MET

    @property
    def failed(self) -> bool:
        """True if it is not known to be met. A sample that this machine cannot run has no target."""
        return self.verdict != MET and self.sample.outcome != "unsupported"

    @property
    def sentence(self) -> str:
        """The result in a sentence."""
        start = f"{self.target.text}: {self.sample.name}: "
        if self.ms is not None:
            return f"{start}{self.ms:.2f} ms."
        if self.sample.outcome != "ok":
            return f"{start}{self.sample.outcome}, {self.sample.why}."
        count = getattr(self.sample.latency, "count", 0)
        return f"{start}not measured: {self.target.percentile} needs {self.target.calls} calls or frames, not {count}."

    def row(self) -> dict[str, Any]:
        """Return it as profile_stats.json has it."""
        known = {"subject": self.sample.subject, "placement": self.sample.placement}
        return {**known, "target": self.target.text, "ms": self.ms, "verdict": self.verdict}


def verdicts(found: Sequence[Sample], targets: Sequence[LatencyTarget]) -> list[TargetVerdict]:
    """Return each target's verdict on each sample."""
    return [TargetVerdict(sample=sample, target=target) for sample in found for target in targets]


def calls_needed(targets: Sequence[LatencyTarget], given: int | None, option: str) -> int:
    """Return the number of calls or frames from which all targets are known; 0 without targets.

    Raises:
        ConfigError: the number that an option gives is too small.
    """
    most = max(targets, key=lambda target: target.calls, default=None)
    if most is None:
        return 0
    if given is not None and given < most.calls:
        raise ConfigError(
            f"--target {most.text!r} needs {most.calls} calls or frames, and {option} is {given}; leave {option} out.",
            code="FK-BENCH-TARGET",
        )
    return most.calls


def parse_targets(text: str) -> tuple[LatencyTarget, ...]:
    """Return the targets in a list, or of a named set.

    Raises:
        ConfigError: a word is neither a target nor a set.
    """
    targets: list[LatencyTarget] = []
    for word in (word.strip() for word in text.split(",") if word.strip()):
        match = _FORM.fullmatch(word)
        if word in SETS:
            period_ms = 1000 / SETS[word]
            targets += [LatencyTarget(percentile=name, ms=round(period_ms * by, 2)) for name, by in _TAIL.items()]
        elif match and match[1] in PERCENTILES:
            targets.append(LatencyTarget(percentile=match[1], ms=float(match[2])))
        else:
            raise ConfigError(
                f"--target {word!r} is no target; write p50<16.67 with one of {', '.join(PERCENTILES)} and ms, or "
                f"{', '.join(SETS)}.",
                code="FK-BENCH-TARGET",
            )
    return tuple(targets)
