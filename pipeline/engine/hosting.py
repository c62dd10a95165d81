"""What Ray calls: functions for steps that share a task, a class for steps that keep a model.

Each is named after its steps, so that Ray's dashboard and `ps` speak of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import ray

from pipeline.engine.board import Reporter
from pipeline.grouping import shared
from pipeline.packet import Packet
from pipeline.second import SecondPass
from pipeline.stage import Placement
from pipeline.step import DecodeStep, Step
from pipeline.storage import Store
from pipeline.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Group:
    """Steps that share a process, and what they need there."""

    key: str  # of this run and this group: workers are set up once for each
    steps: tuple[Step, ...]
    store: Store
    report: Reporter
    decode: DecodeStep | None = None
    last: bool = False

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
    def get(cls, group: Group) -> Worker:
        if group.key not in cls.workers:
            with group.report.fatal():
                cls.workers[group.key] = Worker(group.steps, group.store, group.report)
        return cls.workers[group.key]


def _forward(worker: Worker, group: Group, sealed: pa.Table) -> pa.Table:
    with group.report.fatal():
        return _hand_on(worker.apply(Packet.open(sealed)), group)


def _hand_on(packet: Packet, group: Group) -> pa.Table:
    if group.last:
        return pa.table({"unit": [packet.unit], "start": [packet.start], "stop": [packet.stop]})
    return packet.seal()


def decoding_function(group: Group) -> Callable[[pa.Table], Iterator[pa.Table]]:
    """A task that turns units, or shares of one, into packets and applies the group's steps to each."""

    def run(batch: pa.Table) -> Iterator[pa.Table]:
        assert group.decode is not None
        with group.report.fatal():
            worker = _Hosted.get(group)
            for unit, share, finished in unpack(batch):
                for packet in worker.decode(group.decode, unit, share, finished):
                    yield _hand_on(packet, group)

    run.__name__ = run.__qualname__ = group.name
    return run


def task_function(group: Group) -> Callable[[pa.Table], pa.Table]:
    """A task that applies the group's steps to a packet."""

    def run(sealed: pa.Table) -> pa.Table:
        return _forward(_Hosted.get(group), group, sealed)

    run.__name__ = run.__qualname__ = group.name
    return run


class KeepsModel:
    """A process that keeps a model."""

    def __init__(self, group: Group) -> None:
        self._group = group
        with group.report.fatal():
            self._worker = Worker(group.steps, group.store, group.report)

    def __call__(self, sealed: pa.Table) -> pa.Table:
        """Apply the group's steps to a packet."""
        return _forward(self._worker, self._group, sealed)


def actor_class(group: Group) -> type[KeepsModel]:
    """A class of that name."""
    return type(group.name, (KeepsModel,), {})


class KeepsLaterModel:
    """A process that keeps the model of a second-pass step."""

    def __init__(self, step: SecondPass, report: Reporter) -> None:
        self._step, self._report = step, report
        with report.fatal():
            step.set_up()

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Do the piece of work in a row."""
        with self._report.fatal():
            self._step(unpack(batch), self._report)
        return pa.table({"done": [1]})


def pack(piece: object) -> dict[str, bytes]:
    """A piece of work as a row. Pickled: paths may hold bytes that Arrow's strings cannot."""
    return {"piece": ray.cloudpickle.dumps(piece)}


def unpack(batch: pa.Table) -> Any:
    """The piece of work in a row."""
    return ray.cloudpickle.loads(batch["piece"][0].as_py())
