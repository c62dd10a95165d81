"""Calls of several packets at once: those that must be apart are, and one packet's memory is not another's failure."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.columns import SOURCE
from pipeline.contract.packet import HALO
from pipeline.runtime.calls.call_gate import CallGate
from pipeline.runtime.calls.packet_caller import PacketCaller
from pipeline.runtime.recovery.batch_limits import BatchLimits
from pipeline.runtime.stage_setup import set_up
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


@given(st.lists(st.booleans(), min_size=2, max_size=24))
def test_a_call_apart_has_no_other_beside_it(kinds):
    gate, inside = CallGate(), Inside()

    def call(apart):
        with gate.apart() if apart else gate.beside():
            inside.work(apart=apart)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, kinds))
    assert not inside.wrong


def test_calls_beside_each_other_do_not_wait():
    gate, meet = CallGate(), threading.Barrier(3)

    def call(_):
        with gate.beside():
            meet.wait(30)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(call, range(3)))


def packet():
    values = {"frame_index": range(ROWS), "clip_index": [0] * ROWS, "media_id": ["a.mp4"] * ROWS}
    columns = [pa.array(values.get(item.name, [None] * ROWS), item.type) for item in SOURCE]
    return pa.table([*columns, [False] * ROWS], schema=pa.schema([*SOURCE, (HALO, pa.bool_())]))


@pytest.mark.parametrize("batch", [1, ROWS])
def test_memory_that_another_packet_takes_is_no_failure(batch):
    profile = {"steps": {"sharing": {"batch": batch, "in_flight": 2}}}
    step = plan({"sharing": toy("SharedMemory")}, profile, missing_weights="dummy").first[0]
    set_up(step)
    limits = BatchLimits()
    caller = PacketCaller(step, limits)

    def run(_):
        return caller.run(packet(), np.zeros(ROWS, bool))

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(run, range(2)))
    assert [outcome.failures for outcome in outcomes] == [[], []]
    assert step.stage.refused.is_set()  # once at least, both wanted the memory
    assert not limits.rows and not limits.chunks  # nothing was learned from it
