"""Calls of several packets at once: those that must be apart are, and one packet's memory is not another's failure."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framekiln.contract.columns import SOURCE
from framekiln.contract.packet import HALO
from framekiln.device import Batches, CallScheduler
from framekiln.output.object_store import Store
from framekiln.profiling.step_work import StepWork
from framekiln.profiling.tools.profilers import ProfiledCalls, ProfilerOptions
from framekiln.runtime.recovery.batch_limits import BatchLimits
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller
from tests.support.runs.plan_factory import plan, toy

ROWS = 4


class Inside:
    """Who is in the gate, and whether anybody ever was where a call had to be apart."""

    def __init__(self):
        self._lock, self._beside, self._apart, self.wrong = threading.Lock(), 0, 0, []

    def work(self, *, apart):
        with self._lock:
            self._beside, self._apart = self._beside + (not apart), self._apart + apart
            self.wrong += [(self._beside, self._apart)] * (self._apart > 1 or bool(self._apart and self._beside))
        threading.Event().wait(0.001)
        with self._lock:
            self._beside, self._apart = self._beside - (not apart), self._apart - apart


@pytest.mark.parametrize("linger_s", [None, 0.0], ids=["", "by a thread as on a GPU"])
@given(kinds=st.lists(st.booleans(), min_size=2, max_size=24))
def test_a_call_apart_has_no_other_beside_it(kinds, linger_s):
    calls, inside = CallScheduler("cpu", linger_s), Inside()

    def call(apart):
        (calls.apart if apart else calls.beside)(partial(inside.work, apart=apart))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, kinds))
    calls.close()
    assert not inside.wrong


def test_calls_beside_each_other_do_not_wait():
    calls, meet = CallScheduler(), threading.Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: calls.beside(lambda: meet.wait(30)), range(3)))


def packet(frames=range(ROWS)):
    values = {"frame_index": frames, "clip_index": [0] * ROWS, "media_id": ["a.mp4"] * ROWS}
    values |= {"height": [8] * ROWS, "width": [8] * ROWS}
    columns = [pa.array(values.get(item.name, [None] * ROWS), item.type) for item in SOURCE]
    return pa.table([*columns, [False] * ROWS], schema=pa.schema([*SOURCE, (HALO, pa.bool_())]))


def at_once(caller, threads):
    """Return the outcomes of a packet in each thread."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda _: caller.run(packet(), np.zeros(ROWS, bool)), range(threads)))


@pytest.mark.parametrize("owned", [False, True], ids=["", "by a thread as on a GPU"])
@pytest.mark.parametrize("batch", [1, ROWS])
def test_memory_that_another_packet_takes_is_no_failure(batch, owned, monkeypatch):
    monkeypatch.setattr(Batches, "calls", CallScheduler("cpu", 0.001 if owned else None))
    profile = {"steps": {"sharing": {"batch": batch, "in_flight": 2}}}
    step = plan({"sharing": toy("SharedMemory")}, profile, missing_weights="dummy").first[0]
    set_up(step)
    limits = BatchLimits()
    outcomes = at_once(PacketCaller(step, limits), 2)
    assert [outcome.failures for outcome in outcomes] == [[], []]
    assert step.stage.refused.is_set()  # both wanted the memory at once
    assert not limits.rows and not limits.chunks  # nothing was learned from it


@pytest.mark.parametrize("owned", [False, True], ids=["", "by a thread as on a GPU"])
def test_a_stage_that_is_not_thread_safe_makes_one_call_at_a_time(owned, monkeypatch):
    monkeypatch.setattr(Batches, "calls", CallScheduler("cpu", 0.001 if owned else None))
    step = plan({"keeps": toy("KeepsRows")}, missing_weights="dummy").first[0]
    set_up(step)
    packets, caller = [range(first, first + ROWS) for first in range(0, 16 * ROWS, ROWS)], PacketCaller(step)
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda frames: caller.run(packet(frames), np.zeros(ROWS, bool)), packets))
    assert [outcome.columns["byte"].to_pylist() for outcome in outcomes] == [[*frames] for frames in packets]


@pytest.mark.parametrize("owned", [False, True], ids=["", "by a thread as on a GPU"])
def test_calls_of_several_packets_are_recorded_one_after_the_other(owned, tmp_path, monkeypatch):
    monkeypatch.setattr(Batches, "calls", CallScheduler("cpu", 0.001 if owned else None))
    store, calls = Store(str(tmp_path)).of_run("0123456789ab").begin(), 6
    store.prepare()
    step = plan({"toy": toy("Blurs", side=64)}, {"steps": {"toy": {"batch": 2}}}).first[0]
    set_up(step)
    options = ProfilerOptions(torch_profiler=ProfiledCalls(step="toy", calls=calls))
    outcomes = at_once(PacketCaller(step, profiler=options.caller(step, store)), 4)
    assert [outcome.failures for outcome in outcomes] == [[]] * 4
    recorded = sorted(name.rpartition("-")[2] for name in store.names("profile/torch"))
    assert recorded == [*(f"{number}.json.gz" for number in range(1, calls + 1)), "operators.txt"]


def test_the_wait_for_a_call_apart_is_no_work(monkeypatch):
    calls, work, inside, leave = CallScheduler(), StepWork(), threading.Event(), threading.Event()
    monkeypatch.setattr(Batches, "calls", calls)
    step = plan({"toy": toy("Blurs", side=64)}).first[0]
    set_up(step)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(calls.apart, lambda: (inside.set(), leave.wait(30)))
        inside.wait(30)
        threading.Timer(0.1, leave.set).start()
        PacketCaller(step).run(packet(), np.zeros(ROWS, bool), work=work)
    assert work.phases["queue"] >= 0.09
