"""The end of a dataset, also one that Ctrl-C brings: no thread is left in Ray's core when that is taken down.

Ray's scheduler closes its threads for two seconds at most, and some not at all. A thread that is still inside the core
while `ray.shutdown()` destroys it brings the process down, after all that was to be said of the interruption.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SECONDS = 30.0  # what a scheduler needs on a machine that does much else; then it is given up
PARKED = ("Prefetcher",)  # of Ray Data: waits for work outside the core, and stays with the dataset


@contextmanager
def ended(batches: Any) -> Iterator[None]:
    """Close an iterator of batches after the block, and wait for every thread that was started meanwhile."""
    before = set(threading.enumerate())
    try:
        yield
    finally:
        with interrupts_held():
            batches.close()
            deadline = time.monotonic() + _SECONDS
            for thread in set(threading.enumerate()) - before:
                if thread.name not in PARKED:
                    thread.join(max(0.0, deadline - time.monotonic()))


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let a second Ctrl-C do nothing while what the first one stopped is put in order, in the thread that gets it."""
    kept = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or kept is None:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)
