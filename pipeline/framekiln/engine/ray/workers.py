"""The functions and classes that Ray calls: functions for steps that share a task, classes for steps with a model.

Each is named after its steps, so that Ray's dashboard and `ps` show steps.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import ray

from framekiln.contract.errors import FramekilnError
from framekiln.contract.packet import Packet
from framekiln.contract.row_errors import DECODE
from framekiln.engine.group import StepGroup, decoded, worker_of, write_tables
from framekiln.runtime.recovery.attempt_log import Reporter
from framekiln.runtime.second_pass.second_pass import SecondPass
from framekiln.runtime.worker import Worker


def named(name: str, function: Callable[..., Any], *bound: object) -> Callable[[pa.Table], Any]:
    """Return a function of one row: its last argument; the others are bound."""

    def run(row: pa.Table) -> Any:
        return function(*bound, row)

    run.__name__ = run.__qualname__ = name
    return run


def decode_units(group: StepGroup, report: Reporter, row: pa.Table) -> Iterator[pa.Table]:
    """Decode the units in a row, and yield each packet after the group's steps."""
    for worker, packet in decoded(group, unpack(row), report):
        yield from _hand_on(worker, packet, group)


def apply_steps(group: StepGroup, report: Reporter, row: pa.Table) -> Iterator[pa.Table]:
    """Yield the packet in a row after the group's steps."""
    begin = time.perf_counter()
    packet, fetched = Packet.open(row), time.perf_counter() - begin
    worker = worker_of(group, f"{packet.unit} {packet.start}", report)
    waited = worker.recorder.waited()
    with report.fatal(), worker.packet():
        report.check()
        yield from _hand_on(worker, worker.apply(packet, waited, fetched), group)


def do_later(step: SecondPass, report: Reporter, occasion: str, row: pa.Table) -> pa.Table:
    """Do the second-pass work in a row."""
    write_tables(step, occasion, unpack(row), report)
    return pa.table({"done": [1]})


def _hand_on(worker: Worker, packet: Packet, group: StepGroup) -> Iterator[pa.Table]:
    """Yield one row; Ray continues after storing it, and once it has room for more."""
    last = group.steps[-1].name if group.steps else DECODE
    with worker.recorder.handing_on(last, packet.unit, packet.start, packet.stop):
        if group.last:
            yield pa.table({"unit": [packet.unit], "start": [packet.start], "stop": [packet.stop]})
        else:
            yield packet.seal()


class KeepsModel:
    """A process that keeps a model.

    An error in its set-up is raised at its first work. If the process did not start, Ray would print the traceback on
    the terminal, and retry.
    """

    def __init__(self, set_up: Callable[[str], Callable[[pa.Table], Any]]) -> None:
        """Set it up; `set_up` takes an id that stays when Ray restarts the process, and returns what does its work."""
        try:
            self._work: Callable[[pa.Table], Any] | FramekilnError = set_up(ray.get_runtime_context().get_actor_id())
        except FramekilnError as error:
            self._work = error

    def __call__(self, row: pa.Table) -> Any:
        if isinstance(self._work, FramekilnError):
            raise self._work
        return self._work(row)


def keep_models(group: StepGroup, report: Reporter, occasion: str) -> Callable[[pa.Table], Iterator[pa.Table]]:
    """Set up a group's steps, and return the function that applies them to a packet."""
    worker_of(group, occasion, report)
    return partial(apply_steps, group, report)


def pack(work: object) -> dict[str, bytes]:
    """Return work as a row. It is pickled: paths may hold bytes that Arrow's strings cannot."""
    return {"work": ray.cloudpickle.dumps(work)}


def unpack(row: pa.Table) -> Any:
    """Return the work in a row."""
    return ray.cloudpickle.loads(row["work"][0].as_py())
