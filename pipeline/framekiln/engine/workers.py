"""The functions and classes that Ray calls: functions for steps that share a task, classes for steps with a model.

Each is named after its steps, so that Ray's dashboard and `ps` show steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray

from framekiln.contract.errors import FramekilnError, SetupError
from framekiln.contract.packet import Packet
from framekiln.contract.placement import Placement
from framekiln.contract.row_errors import DECODE
from framekiln.engine.coordinator import Reporter
from framekiln.engine.logs import last_lines
from framekiln.output.object_store import Store
from framekiln.planning.processes.process_groups import combined_placement
from framekiln.planning.step import DecodeStep, Step
from framekiln.profiling.events import worker_name
from framekiln.profiling.tools.profilers import NO_PROFILERS, ProfilerOptions
from framekiln.runtime.recovery.attempt_log import SET_UP
from framekiln.runtime.recovery.memory_pressure import more_memory
from framekiln.runtime.recovery.watchdog import within
from framekiln.runtime.second_pass.second_pass import SecondPass
from framekiln.runtime.worker import Worker

_SET_UPS = 3  # processes that die in their set-up before the run stops: up to two may be killed from outside
_SET_UP_SECONDS = 1800.0  # imports, weights, and models that are compiled, on a busy machine


@dataclass(frozen=True, kw_only=True)
class Group:
    """Steps that share a process, and their surroundings."""

    key: str  # of this run and this group: a process sets up one worker for each
    steps: tuple[Step, ...]
    store: Store
    report: Reporter
    decode: DecodeStep | None = None
    last: bool = False
    profilers: ProfilerOptions = NO_PROFILERS

    @property
    def keeps_model(self) -> bool:
        """Return whether the group runs in a process that keeps a model, not in tasks."""
        return any(step.keeps_model for step in self.steps)

    @property
    def placement(self) -> Placement:
        """Return the placement of the shared process."""
        return combined_placement(self.steps)

    @property
    def name(self) -> str:
        """Return the name that Ray's dashboard shows."""
        return "+".join([*(["decode"] if self.decode else []), *(step.name for step in self.steps)])


_task_workers: dict[str, Worker] = {}  # by the key of their group


def _task_worker(group: Group, work: str) -> Worker:
    """Return this process's worker of a task group: Ray reuses task processes, so a stage is set up once in each."""
    if group.key not in _task_workers:
        _task_workers[group.key] = _make_worker(group, work)
    return _task_workers[group.key]


def _make_worker(group: Group, occasion: str) -> Worker:
    """Set up a worker in this process; see `_setting_up`."""
    with _setting_up(", ".join(step.name for step in group.steps), f"{group.key} {occasion}", group.report):
        return Worker(group.steps, group.store, group.report, group.report, group.key, group.profilers)


@contextmanager
def _setting_up(steps: str, occasion: str, report: Reporter) -> Iterator[None]:
    """Log the set-up of steps in the block, with a timeout; `occasion` stays when Ray repeats it after a death.

    Raises:
        SetupError: processes keep dying at it.
    """
    work = f"{SET_UP}{steps} ({occasion})"
    with report.fatal():
        past = report.begin(work, worker_name())
        if past.deaths >= _SET_UPS:
            output = last_lines(past.workers[-1])
            cause = f"The log of the last one:\n{output}" if output else f"Probably memory ran out: {more_memory()}"
            raise SetupError(
                f"{past.deaths} processes died one after the other in the set-up of {steps}. {cause}",
                code="FK-SETUP-KEEPS-DYING",
            )
        with within(_SET_UP_SECONDS):
            yield
        report.end(work)


def _open(sealed: pa.Table) -> tuple[Packet, float]:
    """Return the packet in a row, and the seconds that opening it took."""
    begin = time.perf_counter()
    return Packet.open(sealed), time.perf_counter() - begin


def _forward(worker: Worker, group: Group, packet: Packet, fetched: float) -> Iterator[pa.Table]:
    waited = worker.recorder.waited()
    with group.report.fatal(), worker.packet():
        group.report.check()
        yield from _hand_on(worker, worker.apply(packet, waited, fetched), group)


def _hand_on(worker: Worker, packet: Packet, group: Group) -> Iterator[pa.Table]:
    """Yield one row; Ray continues when it has stored the row and has room for more."""
    last = group.steps[-1].name if group.steps else DECODE
    with worker.recorder.handing_on(last, packet.unit, packet.start, packet.stop):
        if group.last:
            yield pa.table({"unit": [packet.unit], "start": [packet.start], "stop": [packet.stop]})
        else:
            yield packet.seal()


def decoding_function(group: Group) -> Callable[[pa.Table], Iterator[pa.Table]]:
    """Return a task that decodes units, or shares of one, and applies the group's steps to each packet."""

    def run(batch: pa.Table) -> Iterator[pa.Table]:
        assert group.decode is not None
        with group.report.fatal():
            work = unpack(batch)
            first, number, _ = work[0]
            worker = _task_worker(group, f"{first.name} {number}")
            for unit, share, finished in work:
                for packet in worker.decode(group.decode, unit, share, finished):
                    yield from _hand_on(worker, packet, group)
                    group.report.check()
            group.report.check()

    run.__name__ = run.__qualname__ = group.name
    return run


def task_function(group: Group) -> Callable[[pa.Table], Iterator[pa.Table]]:
    """Return a task that applies the group's steps to a packet."""

    def run(sealed: pa.Table) -> Iterator[pa.Table]:
        packet, fetched = _open(sealed)
        return _forward(_task_worker(group, f"{packet.unit} {packet.start}"), group, packet, fetched)

    run.__name__ = run.__qualname__ = group.name
    return run


def second_pass_function(step: SecondPass, report: Reporter) -> Callable[[pa.Table], pa.Table]:
    """Return a task that does the piece of work in a row."""

    def run(batch: pa.Table) -> pa.Table:
        with report.fatal():
            step(unpack(batch), report, report)
        return pa.table({"done": [1]})

    run.__name__ = run.__qualname__ = step.name
    return run


class KeepsModel:
    """A process that keeps a model.

    An error in its set-up is raised when it gets its first work: if the process did not start, Ray would print the
    traceback on the terminal, and retry.
    """

    def __init__(self, set_up: Callable[[str], Callable[[pa.Table], Any]]) -> None:
        """Set it up; `set_up` takes an id that stays when Ray restarts the process, and returns what does its work."""
        try:
            self._work: Callable[[pa.Table], Any] | FramekilnError = set_up(ray.get_runtime_context().get_actor_id())
        except FramekilnError as error:
            self._work = error

    def __call__(self, row: pa.Table) -> Any:
        """Do the work in a row."""
        if isinstance(self._work, FramekilnError):
            raise self._work
        return self._work(row)


def keep_models(group: Group, occasion: str) -> Callable[[pa.Table], Iterator[pa.Table]]:
    """Set up a group's steps, and return a function that applies them to a packet."""
    worker = _make_worker(group, occasion)
    return lambda sealed: _forward(worker, group, *_open(sealed))


def keep_later_model(step: SecondPass, report: Reporter, occasion: str) -> Callable[[pa.Table], pa.Table]:
    """Set up a second-pass step, and return the function that does its work."""
    with _setting_up(step.name, occasion, report):
        step.set_up()
    return second_pass_function(step, report)


def pack(piece: object) -> dict[str, bytes]:
    """Return a piece of work as a row. It is pickled: paths may hold bytes that Arrow's strings cannot."""
    return {"piece": ray.cloudpickle.dumps(piece)}


def unpack(batch: pa.Table) -> Any:
    """Return the piece of work in a row."""
    return ray.cloudpickle.loads(batch["piece"][0].as_py())
