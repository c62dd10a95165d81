"""The watchdog: it ends a process with a hanging call or GPU, which is then replaced as any dead process.

faulthandler's own thread does the counting. It does not need the interpreter's lock, which hanging code may hold.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

_RESTART_S = 1.0  # least time between two restarts, since each costs a thread

GPU_STALL_S = 120.0
"""Timeout of a GPU for launched work. A batch takes seconds at most; hung firmware never returns."""

TIMEOUT_MARK = "Timeout ("
"""The first words that faulthandler writes to standard error after a timeout."""


class Watchdog:
    """A timer that, unless restarted, ends this process with exit code 1 and all threads' stacks on standard error.

    A process has one timer, set for the timeout that ends first among its blocks and threads.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _ends: ClassVar[dict[Watchdog, float]] = {}  # time at which each running timer ends
    _set_for: ClassVar[float] = 0.0  # 0: the process's timer does not run

    def __init__(self, timeout_s: float) -> None:
        """Make a stopped timer; 0 seconds: it never ends the process."""
        self._timeout_s, self._started = timeout_s, 0.0

    def restart(self) -> None:
        """Start the timer anew; it may run out a second early."""
        now = time.monotonic()
        if self._timeout_s and now - self._started >= _RESTART_S:
            self._started = now
            with Watchdog._lock:
                Watchdog._ends[self] = now + self._timeout_s
                self._set()

    def stop(self) -> None:
        if self._started:
            self._started = 0.0
            with Watchdog._lock:
                Watchdog._ends.pop(self, None)
                self._set()

    @staticmethod
    def _set() -> None:
        """Set the process's timer for the first end, or cancel it; the lock is held."""
        first = min(Watchdog._ends.values(), default=0.0)
        if first == Watchdog._set_for:
            return
        Watchdog._set_for = first
        faulthandler.cancel_dump_traceback_later()
        if first:
            left = max(1e-3, first - time.monotonic())
            faulthandler.dump_traceback_later(left, exit=True, file=sys.__stderr__ or 2)


@contextmanager
def within(timeout_s: float) -> Iterator[None]:
    """End this process if the block takes longer; 0 for no limit."""
    watchdog = Watchdog(timeout_s)
    watchdog.restart()
    try:
        yield
    finally:
        watchdog.stop()
