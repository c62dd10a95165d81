"""What processes tell while a run goes on: one packet's way through one step, and what a machine's cards are doing.

Samples are the raw material of progress, of live figures, of metrics and of the summary at the end.
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
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds, inside calls
    around: Mapping[str, float] = field(default_factory=dict)  # seconds of wait, fetch, decode and write
    calls: tuple[float, ...] = ()  # seconds of each; of decoding the packet's
    device: str = "cpu"
    memory: tuple[float, float, float] | None = None  # GB on the GPU: allocated, reserved, peak
    retries: int = 0  # calls made again because memory had run out

    @property
    def node(self) -> str:
        """The machine's host name."""
        return self.worker.rpartition(":")[0]

    @property
    def ended(self) -> float:
        """Seconds since the epoch."""
        return self.started + self.seconds


Card = Mapping[str, float | None]
"""A GPU's figures by the names of `pipeline.telemetry.nodes.CARD`."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a machine's cards and cores did since the reading before, a second or so ago."""

    node: str
    time: float  # seconds since the epoch
    cards: tuple[Card, ...]
    cpu_percent: float | None = None  # of all cores together


Report = Callable[[Sample], None]
