"""Figures of a process that works on several packets at a time, and records of versions that had one at a time."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framekiln.profiling.records import PACKET
from framekiln.profiling.stats.speed import covered_s
from tests.support.runs.run_records import Made


def overlapping(infer, wait=0.0, device="cuda"):
    """Two packets at any time, 10 s long each, the next one 5 s after the last."""
    made = Made()
    for i in range(8):
        durations = {"preprocess": 2.0, "queue": 8 - infer, "infer": infer, "wait": wait if i else 0.0}
        place = {"unit": "u", "start": 10 * i, "stop": 10 * i + 10, "rows": 10, "lane": i % 2, "device": device}
        made.add("h:1", kind=PACKET, step="model", started=5.0 * i, seconds=10.0, durations=durations, **place)
    return made.measured()["model"]


def test_overlapping_packets_are_busy_once_and_name_their_limit():
    step = overlapping(infer=5.0)
    assert step.busy == step.process_busy == pytest.approx(1.0)
    assert step.parts == pytest.approx({"prepare": 16 / 45, "model": 40 / 45, "finish": 0.0})
    assert step.limit == "prepare" and overlapping(infer=5.5).limit == "model"
    assert overlapping(infer=1.0, wait=3.0).limit == "input"


def test_packets_on_the_cpu_have_a_core_each():
    step = overlapping(infer=8.0, device="cpu")
    assert step.busy == step.process_busy == pytest.approx(1.0)
    assert step.parts == pytest.approx({"prepare": 16 / 45 / 2, "model": 64 / 45 / 2, "finish": 0.0})


def test_a_long_last_packet_beside_none_leaves_the_bottleneck_where_it_is():
    made = Made()
    for i in range(6):
        place = {"unit": "u", "start": 10 * i, "stop": 10 * i + 10, "rows": 10}
        made.add("h:1", kind=PACKET, step="quick", started=1.1 * i, seconds=1.0, **place)
        seconds = 10.0 if i < 5 else 40.0
        made.add("h:2", kind=PACKET, step="slow", started=10.0 * (i // 2), seconds=seconds, lane=i % 2, **place)
    assert made.bottleneck().step == "slow"


def test_the_bottleneck_of_a_shared_process_is_the_step_that_works_not_the_one_that_waits():
    made = Made()
    for i in range(8):
        place = {"unit": "u", "start": 10 * i, "stop": 10 * i + 10, "rows": 10, "lane": i % 2, "device": "cuda"}
        for name, phases in (("light", {"queue": 7.0, "infer": 1.0}), ("heavy", {"queue": 2.0, "infer": 6.0})):
            made.add("h:1", kind=PACKET, step=name, started=8.0 * i, seconds=8.0, durations=phases, **place)
    assert made.bottleneck().step == "heavy"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12))
def test_covered_seconds_are_those_of_at_least_one_interval(intervals):
    seconds = {second for start, length in intervals for second in range(start, start + length)}
    starts, lengths = (np.array([pair[i] for pair in intervals], float) for i in (0, 1))
    assert covered_s(starts, lengths) == len(seconds)


def test_the_timeout_of_one_thread_outlives_the_calls_of_others():
    code = """
import threading, time
from framekiln.device.watchdog import within

def hang():
    with within(2):
        time.sleep(60)

threading.Thread(target=hang, daemon=True).start()
for _ in range(400):
    with within(50):
        time.sleep(0.05)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1 and "Timeout (" in ended.stderr and "in hang" in ended.stderr
