"""The end of a dataset, also by Ctrl-C: no thread is left in Ray's core when it is shut down.

Ray's scheduler waits two seconds at most for its threads, and for some not at all. A thread that is still inside the
core while `ray.shutdown()` destroys it crashes the process, after the message about the interruption.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from framekiln.engine.ray.private import dead_services

_SECONDS = 30.0  # for a scheduler on a busy machine; then it is left alone
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PARKED = ("Prefetcher",)  # of Ray Data: it waits for work outside the core, and lives as long as the dataset


@contextmanager
def ended(batches: Any) -> Iterator[None]:
    """Close an iterator of batches after the block, and wait for every thread that was started in it."""
    before = set(threading.enumerate())
    try:
        yield
    finally:
        with interrupts_held():
            if not dead_services():  # else its threads wait for ever
                batches.close()
                end = time.monotonic() + _SECONDS
                for thread in set(threading.enumerate()) - before:
                    if thread.name not in PARKED and not isinstance(thread, threading._DummyThread):  # of Ray's core
                        thread.join(max(0.0, end - time.monotonic()))


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ignore a second signal while the work that the first one stopped is cleaned up, in the main thread."""
    with signals_kept():
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                signal.signal(number, signal.SIG_IGN)
        yield


@contextmanager
def signals_kept() -> Iterator[None]:
    """Restore the handlers of signals that end a run after the block, in the main thread; Ray sets its own."""
    kept = {number: signal.getsignal(number) for number in _ENDING}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in kept.items():
                signal.signal(number, handler or signal.SIG_DFL)
