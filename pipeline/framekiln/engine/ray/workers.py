"""The functions and classes that Ray calls: functions for steps that share a task, classes for steps with a model.

Each is named after its steps, so that Ray's dashboard and `ps` show steps.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import ray

from framekiln.contract.errors import FramekilnError
from framekiln.contract.packet import Packet
from framekiln.contract.row_errors import DECODE
from framekiln.engine.group import Group, decoded, make_worker, setting_up, worker_of
from framekiln.engine.run_state import Reporter
from framekiln.runtime.second_pass.second_pass import SecondPass
from framekiln.runtime.worker import Worker


def _open(sealed: pa.Table) -> tuple[Packet, float]:
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
        for worker, packet in decoded(group, unpack(batch)):
            yield from _hand_on(worker, packet, group)

    run.__name__ = run.__qualname__ = group.name
    return run


def task_function(group: Group) -> Callable[[pa.Table], Iterator[pa.Table]]:
    """Return a task that applies the group's steps to a packet."""

    def run(sealed: pa.Table) -> Iterator[pa.Table]:
        packet, fetched = _open(sealed)
        return _forward(worker_of(group, f"{packet.unit} {packet.start}"), group, packet, fetched)

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
    worker = make_worker(group, occasion)
    return lambda sealed: _forward(worker, group, *_open(sealed))


def keep_later_model(step: SecondPass, report: Reporter, occasion: str) -> Callable[[pa.Table], pa.Table]:
    """Set up a second-pass step, and return the function that does its work."""
    with setting_up(step.name, occasion, report):
        step.set_up()
    return second_pass_function(step, report)


def pack(piece: object) -> dict[str, bytes]:
    """Return a piece of work as a row. It is pickled: paths may hold bytes that Arrow's strings cannot."""
    return {"piece": ray.cloudpickle.dumps(piece)}


def unpack(batch: pa.Table) -> Any:
    """Return the piece of work in a row."""
    return ray.cloudpickle.loads(batch["piece"][0].as_py())
