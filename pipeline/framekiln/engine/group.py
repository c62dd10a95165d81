"""Work in a process of either engine: steps that share it, their set-up, and their results."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from framekiln.contract.errors import SetupError
from framekiln.contract.packet import Packet, RowSpan
from framekiln.contract.placement import Placement
from framekiln.device.watchdog import within
from framekiln.media.units import Segments, Unit, split_unit, task_bytes
from framekiln.output.ledger import Ledger, Part
from framekiln.output.object_store import Store
from framekiln.planning.processes.waves import Wave, combined_placement
from framekiln.planning.step import DecodeStep, Step
from framekiln.profiling.tools.profilers import NO_PROFILERS, ProfilerOptions
from framekiln.runtime.recovery.attempt_log import SET_UP, Reporter
from framekiln.runtime.recovery.child_tasks import SET_UP_S
from framekiln.runtime.recovery.memory_pressure import more_memory
from framekiln.runtime.second_pass.second_pass import SecondPass, UnitRows
from framekiln.runtime.worker import Worker

T = TypeVar("T")
DecodeWork = tuple[Unit, Segments, frozenset[RowSpan], tuple[Part, ...], frozenset[str]]
"""A unit, its wanted segments, row spans already finished, its parts if known, and `whole` (see `adopt`)."""

_SET_UPS = 3  # deaths in a set-up until the run stops: up to two may have been killed from outside

_TASK_UNITS = 8  # ten seconds of small photos: the most work that a dying task loses
_SHARE = 1.2  # a task takes 1 / (this * slots) of what is left: in simulations the fewest tasks with a tail under 1 %


@dataclass(frozen=True, kw_only=True)
class StepGroup:
    """Steps that share a process, and their context."""

    key: str  # unique for this run and group: a process sets up one worker for each key
    steps: tuple[Step, ...]
    store: Store
    decode: DecodeStep | None = None
    last: bool = False
    profilers: ProfilerOptions = NO_PROFILERS

    @property
    def keeps_model(self) -> bool:
        """Return whether the group runs in a process that keeps a model, not in tasks."""
        return any(step.keeps_model for step in self.steps)

    @property
    def placement(self) -> Placement:
        return combined_placement(self.steps)

    @property
    def name(self) -> str:
        """Return the name that process lists and Ray's dashboard show."""
        return "+".join([*(["decode"] if self.decode else []), *(step.name for step in self.steps)])


_workers: dict[str, Worker] = {}  # this process's workers, by the key of their group
_later: set[str] = set()  # second-pass steps already set up in this process


def worker_of(group: StepGroup, occasion: str, report: Reporter) -> Worker:
    """Return this process's worker of a group; its stages are set up once. See `_record_set_up`."""
    if group.key not in _workers:
        with _record_set_up(", ".join(step.name for step in group.steps), f"{group.key} {occasion}", report):
            _workers[group.key] = Worker(group.steps, group.store, report, group.key, group.profilers)
    return _workers[group.key]


@contextmanager
def _record_set_up(steps: str, occasion: str, report: Reporter) -> Iterator[None]:
    """Record a set-up in the attempt log, with a timeout; a replaced process has the same `occasion`.

    Raises SetupError: processes keep dying in it.
    """
    work = f"{SET_UP}{steps} ({occasion})"
    with report.fatal():
        past = report.begin(work)
        if past.deaths >= _SET_UPS:
            output = report.last_lines(past.workers[-1])
            cause = f"The log of the last one:\n{output}" if output else f"Probably memory ran out: {more_memory()}"
            raise SetupError(
                f"{past.deaths} processes in a row died in the set-up of {steps}. {cause}",
                code="FK-SETUP-KEEPS-DYING",
            )
        with within(SET_UP_S):
            yield
        past.end()


def decoded(group: StepGroup, work: Sequence[DecodeWork], report: Reporter) -> Iterator[tuple[Worker, Packet]]:
    """Decode units and apply the group's steps. Yield each packet with the worker that made it."""
    assert group.decode is not None
    with report.fatal():
        first, number, *_ = work[0]
        worker = worker_of(group, f"{first.name} {number}", report)
        for each in work:
            for packet in worker.decode(group.decode, *each):
                yield worker, packet
                del packet  # the worker already makes the next one
                report.check()
        report.check()


def write_tables(step: SecondPass, occasion: str, units: tuple[UnitRows, ...], report: Reporter) -> None:
    """Do second-pass work; a step with a model is first set up, once for each `occasion`. See `_record_set_up`."""
    with report.fatal():
        if step.processes is not None and occasion not in _later:
            with _record_set_up(step.name, occasion, report):
                step.set_up()
            _later.add(occasion)
        step(units, report)


def decode_work(wave: Wave, units: Sequence[Unit], ledger: Ledger, slots: int) -> list[tuple[DecodeWork, ...]]:
    """Return a wave's remaining work, divided into decode tasks; `slots` tasks run at once."""
    each, folder = task_bytes(units, wave.decode.config, wave.decode.workers), wave.decode.folder
    reads_known, sized = bool(wave.decode.spares or wave.decode.adopters), []
    for unit in units:
        spans, size = ledger.common(wave.folders, unit.name), sum(media.size for media in unit.media)
        known = tuple(ledger.parts(folder, folder, unit.name) or ()) if reads_known else ()
        folders = {step.folder for step in wave.decode.adopters} if known else ()
        whole = frozenset(name for name in folders if ledger.has((folder, name), unit.name))
        sized.append([((unit, segments, spans, known, whole), size) for segments in split_unit(unit, each)])
    return divide_into_tasks(sized, slots)


def divide_into_tasks(units: Sequence[Sequence[tuple[T, int]]], slots: int) -> list[tuple[T, ...]]:
    """Return the work of each decode task, long ones first: segments of a video, or several small units.

    `units` holds the work on each unit, with its size. A unit with several entries is a video. `slots` tasks run at
    once.

    Ray takes 0.02 to 0.2 s from the end of a task to the start of the next, so the first tasks are long. Each task
    takes a fixed share of the remaining work, down to one unit, so that idle slots wait little for the last tasks. This
    is guided self-scheduling (Polychronopoulos and Kuck, IEEE Transactions on Computers C-36, 1987).
    """
    films = [(work,) for works in units if len(works) > 1 for work, _ in works]
    small = [works[0] for works in units if len(works) == 1]
    left = sum(size for _, size in small)
    tasks: list[tuple[T, ...]] = []
    begin = 0
    while begin < len(small):
        totals = [*accumulate(size for _, size in small[begin : begin + _TASK_UNITS])]
        number = max(1, sum(total <= left / (_SHARE * slots) for total in totals))
        tasks.append(tuple(work for work, _ in small[begin : begin + number]))
        left -= totals[number - 1]
        begin += number
    return [*films, *tasks]
