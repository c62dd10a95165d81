"""A hang becomes a death, which is something that the run knows how to deal with.

faulthandler's own thread does the counting: it needs no lock of the interpreter, which the code that hangs may hold.
"""

from __future__ import annotations

import faulthandler
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_EVERY = 1.0  # seconds between two starts of the clock, since starting it costs a thread


class Deadline:
    """A clock that ends this process, with all threads' stacks on standard error, unless it is started anew in time.

    One clock runs in a process: blocks do not nest.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._started = seconds, 0.0

    def again(self) -> None:
        """Start it anew; it may run out a second early."""
        now = time.monotonic()
        if self._seconds and now - self._started >= _EVERY:
            self._started = now
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=sys.__stderr__ or 2)

    def stop(self) -> None:
        """Let it rest."""
        if self._started:
            self._started = 0.0
            faulthandler.cancel_dump_traceback_later()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """End this process if the block takes longer; 0 for no limit."""
    clock = Deadline(seconds)
    clock.again()
    try:
        yield
    finally:
        clock.stop()
