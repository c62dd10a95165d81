"""The owner of calls: what ends its thread reaches everybody, a device that hangs is given up."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln.device import Batches, call_scheduler
from framekiln.device.call_scheduler import SchedulerState
from framekiln.device.failures import OwnerEndedError
from framekiln.device.watchdog import TIMEOUT_MARK
from framekiln.runtime.recovery.captured_error import capture
from tests.support.runs.scheduled_calls import FOREVER, Network, numbers, opened, together


def refused(*_):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def ends(error):
    def function(rows):
        raise error

    return function


@pytest.mark.parametrize("cause", ["release_memory", "most", SystemExit, KeyboardInterrupt])
def test_what_ends_the_owner_reaches_all_that_wait_and_all_that_come_later(cause, monkeypatch):
    full = torch.OutOfMemoryError("CUDA out of memory")
    with opened(FOREVER) as calls:
        batches = Batches(ends(full if isinstance(cause, str) else cause()), Placement(batch=8))
        if cause == "release_memory":
            monkeypatch.setattr(call_scheduler, "release_memory", refused)
        if cause == "most":
            batches.most = refused
        waiting = together(calls, batches, numbers(3, 2))
        assert [type(error) for error in waiting] == [OwnerEndedError] * 2 and calls.state is SchedulerState.ENDED
        assert all(isinstance(error.__cause__, (RuntimeError, SystemExit, KeyboardInterrupt)) for error in waiting)
        (later,) = together(calls, Batches(Network(), Placement(batch=8)), numbers(1))
        assert type(later) is OwnerEndedError and capture(later).broken_gpu  # so that another process takes over
        assert calls.apart(lambda: 5) == calls.beside(lambda: 5) == 5  # work without a model goes on


@pytest.mark.parametrize(
    "wrong", [lambda rows: torch.cat([rows, rows[:1]]), lambda rows: rows[1:]], ids=["more", "few"]
)
def test_a_model_that_returns_other_rows_than_it_was_given_fails_its_batch(wrong):
    network, requests = Network(), numbers(3, 2)
    with opened(FOREVER) as calls:
        results = together(calls, Batches(wrong, Placement(batch=8)), requests)
        assert [type(result) for result in results] == [ValueError] * 2
        batches = Batches(lambda rows: wrong(rows) if len(rows) > 3 else network(rows), Placement(batch=8))
        results = together(calls, batches, requests)  # each alone is right
    assert all(torch.equal(result, 2 * rows) for result, rows in zip(results, requests, strict=True))


class Noted:
    """Notes what the owner thread does with it, and whether it runs."""

    def __init__(self, limit_s):
        self.limit_s, self.restarts, self.runs = limit_s, 0, False

    def restart(self):
        self.restarts, self.runs = self.restarts + 1, True

    def stop(self):
        self.runs = False


def test_the_time_limit_is_for_the_device_and_not_for_a_task_or_the_compiler(monkeypatch):
    monkeypatch.setattr(call_scheduler, "Watchdog", Noted)
    ran = []
    with opened(0.0, limit_s=5.0) as calls:
        timer = calls._watchdog
        assert timer.limit_s == 5.0
        batches = Batches(lambda rows: (ran.append(timer.runs), rows)[1], Placement(batch=8))
        together(calls, batches, numbers(2, 1))
        batches.compiles = lambda _: True
        together(calls, batches, numbers(1))
        assert calls.apart(lambda: timer.runs) is False
        assert set(ran[:-1]) == {True} and ran[-1] is False
        after = timer.restarts
        together(calls, Batches(Network(), Placement(batch=1)), numbers(3))
        assert timer.restarts >= after + 3  # each batch is a sign of life
    assert not timer.runs


def test_a_device_that_hangs_ends_its_process():
    """Give a short limit to a device that never answers: in a child process, which it ends."""
    code = """
import threading, torch
from framekiln.contract.placement import Placement
from framekiln.device import Batches, CallScheduler
from framekiln.device.call_queue import Mark
Mark.wait = lambda _: threading.Event().wait()
Batches.calls = CallScheduler("cpu", 0.0, 0.5)
Batches(lambda rows: rows, Placement(batch=1))(torch.ones(9, 1))
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == 1 and TIMEOUT_MARK in child.stderr
