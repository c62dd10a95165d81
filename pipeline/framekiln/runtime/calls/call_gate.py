"""The gate of a process's calls: several at a time, or one apart from all others.

A call is made apart if it may kill its process, if memory ran out, or if a profiler records it. Beside it another
packet's call would be blamed for the death, take the memory, or be recorded too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CallGate:
    """Calls beside each other, or one apart; a thread passes through it once at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._beside = 0  # calls beside each other now
        self._apart = 0  # calls apart, the waiting ones included
        self._is_closed = False  # one of them is made

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Call in this block beside others, once no call waits to be apart."""
        with self._changed:
            self._changed.wait_for(lambda: not self._apart)
            self._beside += 1
        try:
            yield
        finally:
            with self._changed:
                self._beside -= 1
                self._changed.notify_all()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Call in this block with no call beside it."""
        with self._changed:
            self._apart += 1
            self._changed.wait_for(lambda: not (self._beside or self._is_closed))
            self._is_closed = True
        try:
            yield
        finally:
            with self._changed:
                self._apart -= 1
                self._is_closed = False
                self._changed.notify_all()
