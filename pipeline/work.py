"""What a run finds left to do in its output, and what it made of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.machines import Node
from pipeline.media.store import Media
from pipeline.media.units import Unit
from pipeline.placing import full
from pipeline.plan import Plan
from pipeline.reasons import Changes, Outlook
from pipeline.telemetry.figures import Figures
from pipeline.telemetry.profiles import RunProfile


@dataclass(frozen=True, kw_only=True)
class Work:
    """What there is, and what of it is left to do."""

    plan: Plan
    nodes: Sequence[Node]
    media: Sequence[Media]
    wanted: frozenset[str]  # files whose rows belong into the tables
    units: Sequence[Unit]
    pending: Sequence[Unit]  # units that some first-pass step has not finished
    left: bool  # anything at all
    changed: bool  # whether the tables are others after the run than before
    files: Changes = field(default_factory=Changes)
    outlook: Sequence[Outlook] = ()  # what each step has to do, and why

    @property
    def crowded(self) -> frozenset[str]:
        """Steps for another of whose workers no core is left, decoding too."""
        return full(self.plan.waves, self.plan.second, sum(node.cpus for node in self.nodes))


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run did."""

    work: Work
    frames: int
    errors: Counter[str]  # by kind
    started: float  # seconds since the epoch
    seconds: float
    figures: Figures = field(default_factory=Figures)
    profile: RunProfile | None = None  # from its records; None where no packet went through a step
