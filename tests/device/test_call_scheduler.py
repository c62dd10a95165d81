"""The owner of calls: what ends its thread reaches everybody, and an interrupted wait nobody."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln.device import Batches, CallScheduler, call_scheduler
from framekiln.device.failures import OwnerEndedError
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
        assert [type(error) for error in waiting] == [OwnerEndedError] * 2
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


class Interrupted(BaseException):
    """What Ctrl-C raises in a thread that waits."""


@pytest.fixture
def interrupt():
    """Interrupt the main thread once it waits beside others."""

    def raise_it(*_):
        raise Interrupted

    def once_it_waits(calls, others):
        while calls._blocked == others:
            time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, raise_it)
    yield once_it_waits
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("linger_s", [None, 0.0], ids=["", "by a thread as on a GPU"])
@pytest.mark.parametrize("running", ["apart", "beside"])
@pytest.mark.parametrize("kind", ["apart", "beside"])
def test_a_wait_that_is_interrupted_leaves_nobody_waiting(kind, running, linger_s, interrupt):
    calls, inside, leave = CallScheduler("cpu", linger_s), threading.Event(), threading.Event()
    stage = object()
    wait_for_turn = {"apart": calls.apart, "beside": partial(calls.beside, alone_in=stage)}
    with ThreadPoolExecutor(2) as pool:
        held = pool.submit(wait_for_turn[running], lambda: (inside.set(), leave.wait()))
        inside.wait()
        others = calls._blocked  # the asker of a call that the owner thread makes
        other = pool.submit(interrupt, calls, others)
        with pytest.raises(Interrupted):
            wait_for_turn[kind](lambda: None)
        assert calls._blocked == others
        leave.set()
        held.result(), other.result()
        later = [pool.submit(wait_for_turn[name], lambda: 5) for name in ("beside", "apart", "beside")]
        assert [each.result(30) for each in later] == [5, 5, 5]
    calls.close()
