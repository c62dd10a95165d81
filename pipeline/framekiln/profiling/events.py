"""Events that processes send while a run goes on: a packet's passage through a step, and readings of a node.

Progress, live figures, metrics and the totals of a run are computed from them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from framekiln.profiling.records import OUTSIDE, Work


@dataclass(kw_only=True, slots=True)
class StepEvent(Work):
    """A packet's passage through a step, or a set-up. Decoding also reports the empty packet that ends a unit."""

    worker: str  # host:pid
    failures: int = 0
    share: float = 0.0  # of the unit's bytes, of decoding: decoded to their end by this worker's packets up to this one
    reasons: Mapping[str, int] = field(default_factory=dict)  # failures by kind and message
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds, inside calls
    around: Mapping[str, float] = field(default_factory=dict)  # seconds outside calls: wait, fetch, decode and write
    calls: tuple[float, ...] = ()  # seconds of each; of decoding, the packet's
    note: str = ""  # a sentence on why the step's model runs uncompiled in this process

    @property
    def node(self) -> str:
        """Return the machine's host name."""
        return self.worker.rpartition(":")[0]

    @property
    def ended(self) -> float:
        """Return the end, in seconds since the epoch."""
        return self.started + self.seconds

    @property
    def inside(self) -> dict[str, float]:
        """Return the seconds of each phase that is part of the packet's own."""
        return {name: value for name, value in {**self.phases, **self.around}.items() if name not in OUTSIDE}


GpuSample = Mapping[str, float | None]
"""A GPU's metrics by the names of `framekiln.profiling.node_metrics.GPU`."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Use of a node's GPUs and cores since its previous reading, about a second ago."""

    node: str
    time: float  # seconds since the epoch
    gpus: tuple[GpuSample, ...]
    cpu_percent: float | None = None  # of all cores together


Report = Callable[[StepEvent], None]


def worker_name() -> str:
    """Return this process's name in a run: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"
