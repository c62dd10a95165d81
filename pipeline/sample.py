"""One packet's way through one step, as its worker reports it.

Samples are the raw material of progress, of the report and of every comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

SET_UP = " set-up"
"""Ending of a step's name in the sample of its set-up."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What one step did with one packet. Decoding also reports the empty packet that ends a unit."""

    step: str
    worker: str  # host:pid
    unit: str = ""
    rows: int = 0
    failures: int = 0
    share: float = 0.0  # of the unit's bytes: those of the worker's packets up to this one, decoded to their end
    reasons: Mapping[str, int] = field(default_factory=dict)  # of failures: kind and message, and how often
    started: float  # seconds since the epoch
    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds


Report = Callable[[Sample], None]
