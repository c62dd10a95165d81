"""The work that a run finds, and the result of doing it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from framekiln.contract.row_errors import DECODE
from framekiln.device.cores import usable_cores
from framekiln.media.files import MediaFile
from framekiln.media.units import Unit
from framekiln.output.ledger import Ledger
from framekiln.output.object_store import Store
from framekiln.planning.plan import Plan
from framekiln.planning.processes.placement import Room, asked_processes, rooms
from framekiln.planning.processes.resources import Node
from framekiln.planning.processes.waves import Wave
from framekiln.profiling.run_profile import RunProfile
from framekiln.profiling.stats.progress import RunTotals
from framekiln.runtime.run.change_report import Changes, Outlook
from framekiln.runtime.second_pass.second_pass import UnitRows, unit_rows


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The files and steps of a run, and their unfinished part."""

    plan: Plan
    nodes: Sequence[Node]
    media: Sequence[MediaFile]
    wanted: frozenset[str]  # media ids with rows in the tables
    units: Sequence[Unit]
    pending: Sequence[Unit]  # units that some first-pass step has not finished
    left: bool  # any work at all
    changed: bool  # the run changes tables
    files: Changes = field(default_factory=Changes)
    waves: Sequence[Wave]  # waves of the plan, without finished steps
    outlook: Sequence[Outlook] = ()  # the remaining work of each step, and the reason for it
    leaving: Sequence[str] = ()  # first-pass steps of the run before that this run lacks
    has_local_engine: bool = False  # as many processes as cores, each with all first-pass steps

    def finished(self, store: Store, units: Sequence[Unit] | None = None) -> list[UnitRows]:
        """Return the given units, by default all, that every first-pass step has finished."""
        return unit_rows(self.plan, Ledger(store), self.units if units is None else units, self.wanted)

    @property
    def rooms(self) -> Mapping[str, Room]:
        """The processes of each step, decoding included."""
        found = rooms(self.plan.waves, self.plan.second, sum(node.cpus for node in self.nodes))
        if not self.has_local_engine:
            return found
        cores, asked = usable_cores(), max(map(asked_processes, self.plan.waves))
        shared = Room(processes=min(cores, asked), is_full=asked >= cores)
        return found | dict.fromkeys((DECODE, *(step.name for step in self.plan.first)), shared)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The result of a run."""

    work: Workload
    frames: int
    errors: Counter[str]  # by kind
    passed_over: int = 0  # files that are no media
    chosen: Mapping[str, Sequence[int]] = field(default_factory=dict)  # rows computed by conditional steps, of all rows
    absent_rows: int = 0  # rows of `--rows` that are no frames of the run
    started: float  # seconds since the epoch
    seconds: float
    figures: RunTotals = field(default_factory=RunTotals)
    profile: RunProfile | None = None  # from its records; None if no packet passed a step
    recordings: Sequence[str] = ()  # a sentence about the recordings of each profiler
    report: str | None = None  # URL; None if another shard was replacing tables
