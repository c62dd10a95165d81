"""The end of a dataset: its threads end before Ray does, and a second Ctrl-C is ignored meanwhile."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from framekiln.engine.ray.death_watch import ended, interrupts_held


class Batches:
    """An iterator whose thread goes on for a while after it was closed, as Ray's scheduler may."""

    def __init__(self, seconds: float = 0) -> None:
        self._closed = threading.Event()
        self.thread = threading.Thread(target=lambda: (self._closed.wait(), time.sleep(seconds)), daemon=True)

    def close(self) -> None:
        self._closed.set()


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_threads_that_were_started_meanwhile_have_ended(error):
    batches = Batches(0.4)
    try:
        with ended(batches):
            batches.thread.start()
            if error:
                raise error
    except (KeyboardInterrupt, ValueError) as raised:
        assert type(raised) is error
    assert not batches.thread.is_alive()


def test_older_threads_are_not_waited_for():
    older, batches = Batches(), Batches()
    older.thread.start()
    with ended(batches):
        batches.thread.start()
    assert older.thread.is_alive()  # it ends no earlier than it is closed, so nothing waited for it
    older.close()


@pytest.fixture
def listening():
    """Ctrl-C is heard, also where the shell started these tests in the background and so deaf to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_second_interrupt_waits_for_nothing_and_the_next_one_works(listening):
    with interrupts_held():
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_elsewhere_than_in_the_main_thread_it_does_nothing():
    seen = []

    def work() -> None:
        with interrupts_held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
