"""Targets for the latency of a frame, as `p50<16.67,p95<20,p99<25` in ms, or a named set."""

from __future__ import annotations

import re
from dataclasses import dataclass

from framekiln.contract.errors import ConfigError
from framekiln.lab.measure.statistics import PERCENTILES, Statistics
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

    def verdict(self, latency: Statistics | None) -> str:
        """Return whether a latency meets it: met, not met, or not measured where there were too few calls."""
        value = None if latency is None else getattr(latency, self.percentile)
        if value is None:
            return NOT_MEASURED
        return MET if value < self.ms else NOT_MET


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
