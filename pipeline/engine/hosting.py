"""What Ray calls: functions for steps that share a task, a class for steps that keep a model.

Each is named after its steps, so that Ray's dashboard and `ps` speak of steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import ray

from pipeline.deadline import within
from pipeline.engine.board import Reporter
from pipeline.engine.logs import last_words
from pipeline.errors import FramemillError, SetupError
from pipeline.failure import DECODE
from pipeline.grouping import shared
from pipeline.instruments import NONE, Instruments
from pipeline.journal import worker_name
from pipeline.packet import Packet
from pipeline.second import SecondPass
from pipeline.stage import Placement
from pipeline.step import DecodeStep, Step
from pipeline.storage import Store
from pipeline.worker import Worker

_SET_UPS = 3  # processes that die in their set-up before the run stops: one may be hit from outside, even two
_SET_UP_SECONDS = 1800.0  # imports, weights, and models that are compiled, on a busy machine


@dataclass(frozen=True, kw_only=True)
class Group:
    """Steps that share a process, and what they need there."""

    key: str  # of this run and this group: workers are set up once for each
    steps: tuple[Step, ...]
    store: Store
    report: Reporter
    decode: DecodeStep | None = None
    last: bool = False
    instruments: Instruments = NONE

    @property
    def keeps_model(self) -> bool:
        """Whether it is a process that stays, not a task."""
        return any(step.keeps_model for step in self.steps)

    @property
    def placement(self) -> Placement:
        """What its process asks for."""
        return shared(self.steps)

    @property
    def name(self) -> str:
        """What Ray's dashboard shows."""
        return "+".join([*(["decode"] if self.decode else []), *(step.name for step in self.steps)])


class _Hosted:
    """Workers of task groups by their key: Ray reuses task processes, so a stage is set up once in each."""

    workers: ClassVar[dict[str, Worker]] = {}

    @classmethod
    def get(cls, group: Group, work: str) -> Worker:
        if group.key not in cls.workers:
            cls.workers[group.key] = _ready(group, work)
        return cls.workers[group.key]


def _ready(group: Group, occasion: str) -> Worker:
    """A worker of this process; see `_set_up_once`."""
    with _set_up_once(", ".join(step.name for step in group.steps), f"{group.key} {occasion}", group.report):
        return Worker(group.steps, group.store, group.report, group.report, group.key, group.instruments)


@contextmanager
def _set_up_once(steps: str, occasion: str, report: Reporter) -> Iterator[None]:
    """A set-up of steps, inside.

    Args:
        steps: their names.
        occasion: what Ray comes back with when this process dies: the same for each attempt.
        report: the journal.

    Raises:
        SetupError: processes keep dying at it.
    """
    work = f"set-up of {steps} ({occasion})"
    with report.fatal():
        past = report.begin(work, worker_name())
        if past.deaths >= _SET_UPS:
            said = last_words(past.workers[-1])
            last = f"The last one said:\n{said}" if said else "Its log is silent; see the kernel's for its OOM killer."
            raise SetupError(f"{past.deaths} processes died one after the other in the set-up of {steps}. {last}")
        with within(_SET_UP_SECONDS):
            yield
        report.end(work)


def _open(sealed: pa.Table) -> tuple[Packet, float]:
    """The packet in a row, and how many seconds it took to open it."""
    begin = time.perf_counter()
    return Packet.open(sealed), time.perf_counter() - begin


def _forward(worker: Worker, group: Group, packet: Packet, fetched: float) -> Iterator[pa.Table]:
    with group.report.fatal():
        group.report.check()
        yield from _hand_on(worker, worker.apply(packet, fetched), group)


def _hand_on(worker: Worker, packet: Packet, group: Group) -> Iterator[pa.Table]:
    """One row; Ray asks on once it has stored it, and has room for more."""
    last = group.steps[-1].name if group.steps else DECODE
    with worker.recorder.handing_on(last, packet.unit, packet.start, packet.stop):
        if group.last:
            yield pa.table({"unit": [packet.unit], "start": [packet.start], "stop": [packet.stop]})
        else:
            yield packet.seal()


def decoding_function(group: Group) -> Callable[[pa.Table], Iterator[pa.Table]]:
    """A task that turns units, or shares of one, into packets and applies the group's steps to each."""

    def run(batch: pa.Table) -> Iterator[pa.Table]:
        assert group.decode is not None
        with group.report.fatal():
            work = unpack(batch)
            first, number, _ = work[0]
            worker = _Hosted.get(group, f"{first.name} {number}")
            for unit, share, finished in work:
                for packet in worker.decode(group.decode, unit, share, finished):
                    yield from _hand_on(worker, packet, group)
                    group.report.check()
            group.report.check()

    run.__name__ = run.__qualname__ = group.name
    return run


def task_function(group: Group) -> Callable[[pa.Table], Iterator[pa.Table]]:
    """A task that applies the group's steps to a packet."""

    def run(sealed: pa.Table) -> Iterator[pa.Table]:
        packet, fetched = _open(sealed)
        return _forward(_Hosted.get(group, f"{packet.unit} {packet.start}"), group, packet, fetched)

    run.__name__ = run.__qualname__ = group.name
    return run


class KeepsModel:
    """A process that keeps a model.

    One that could not be set up says so when it is first given work: of a process that does not start, Ray would write
    the traceback on the terminal, and that it tries again.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        try:
            self._worker: Worker | FramemillError = _ready(group, ray.get_runtime_context().get_actor_id())
        except FramemillError as error:
            self._worker = error

    def __call__(self, sealed: pa.Table) -> Iterator[pa.Table]:
        """Apply the group's steps to a packet."""
        if isinstance(self._worker, FramemillError):
            raise self._worker
        return _forward(self._worker, self._group, *_open(sealed))


def actor_class(group: Group) -> type[KeepsModel]:
    """A class of that name."""
    return type(group.name, (KeepsModel,), {})


class KeepsLaterModel:
    """A process that keeps the model of a second-pass step; see `KeepsModel`."""

    def __init__(self, step: SecondPass, report: Reporter) -> None:
        self._step, self._report = step, report
        self._failed: FramemillError | None = None
        try:
            with _set_up_once(step.name, ray.get_runtime_context().get_actor_id(), report):
                step.set_up()
        except FramemillError as error:
            self._failed = error

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Do the piece of work in a row."""
        if self._failed is not None:
            raise self._failed
        with self._report.fatal():
            self._step(unpack(batch), self._report, self._report)
        return pa.table({"done": [1]})


def pack(piece: object) -> dict[str, bytes]:
    """A piece of work as a row. Pickled: paths may hold bytes that Arrow's strings cannot."""
    return {"piece": ray.cloudpickle.dumps(piece)}


def unpack(batch: pa.Table) -> Any:
    """The piece of work in a row."""
    return ray.cloudpickle.loads(batch["piece"][0].as_py())
