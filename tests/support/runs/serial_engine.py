"""An engine without Ray: the same workers and steps, one after the other in this process.

A run through it takes tenths of a second, so that tests of what lies in an output can make hundreds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain

import pytest

from framekiln.contract.packet import Packet
from framekiln.device import Batches, CallScheduler
from framekiln.engine.base import Engine
from framekiln.engine.group import decode_work
from framekiln.engine.ray import session
from framekiln.job import job
from framekiln.planning.processes.resources import this_machine
from framekiln.runtime.recovery.attempt_log import AttemptTable, Reporter
from framekiln.runtime.worker import Worker


class _Reporter(Reporter):
    """The connection to an attempt log in this process."""

    def __init__(self, on_events):
        self._send, self._log = on_events, AttemptTable()

    def __call__(self, event):
        self._send([event])

    def ask(self, method, *arguments):
        return getattr(self._log, method)(*arguments)

    def last_lines(self, worker):
        return ""


class SerialEngine(Engine):
    """Both passes in this process."""

    def __init__(self, context):
        super().__init__(context)
        self._report = _Reporter(context.on_events)

    def close(self):
        """Do nothing: no process was started."""

    def first_pass(self, number, units, ledger):
        wave = self._plan.waves[number]
        first, *others = [Worker(steps, self._store, self._report, "serial") for steps in wave.groups()]
        for work in chain(*decode_work(wave, units, ledger, wave.decode.workers)):
            for packet in first.decode(wave.decode, *work):
                for worker in others:
                    packet = worker.apply(Packet.open(packet.seal()))

    def second_pass(self, step, pieces):
        for piece in pieces:
            step(piece, self._report)


@contextmanager
def _session(address, on_wait=None) -> Iterator[list]:
    yield [this_machine()]


@contextmanager
def without_ray() -> Iterator[None]:
    """Let runs of this process use the serial engine inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "make_engine", lambda _, context, *__: SerialEngine(context))
        patch.setattr(job, "choose", lambda *_, **__: ("local", ""))
        patch.setattr(job, "started_ahead", lambda *_, **__: nullcontext([]))
        patch.setattr(session, "session", _session)
        patch.setattr(Batches, "calls", CallScheduler())  # a process of its own would end with its own
        yield
