"""Runs of one process take turns at Ray, and Ctrl-C leaves no half of an import."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import framekiln
from framekiln.engine.ray.turn import interrupts_deferred, own_turn
from tests.support.media.collections_factory import collection


def test_a_run_of_another_thread_waits_and_says_so():
    told, waits, order = [], threading.Event(), []

    def second():
        with own_turn(lambda text: (told.append(text), waits.set())):
            order.append("second")

    thread = threading.Thread(target=second)
    with own_turn(told.append), own_turn(told.append):  # a run joins Ray more than once
        thread.start()
        assert waits.wait(30)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"] and len(told) == 1


def test_ctrl_c_waits_for_the_end_of_the_block():
    reached, before = [], signal.getsignal(signal.SIGINT)  # whichever test comes before this one
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(True)
    assert reached and signal.getsignal(signal.SIGINT) is before


@pytest.mark.heavy
@pytest.mark.slow
def test_two_runs_on_ray_in_two_threads_end(tmp_path):
    media = collection(tmp_path / "in", 2, 10)
    steps = {"steps": {"crc": {"use": "tests.toys:Checksum"}}}

    def run(name):
        return framekiln.run(media, tmp_path / name, pipeline=steps, engine="ray").summary.frames

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, "ab")) == [12, 12]
