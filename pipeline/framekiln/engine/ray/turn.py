"""Turns of runs at Ray: a process has one session, and imports Ray once.

This module does not import Ray, so that its import can be guarded.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_TURN = threading.RLock()


@contextmanager
def own_turn(on_wait: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other thread's run uses Ray; two would end each other's session."""
    if not _TURN.acquire(blocking=False):
        on_wait("Waiting for the end of another run of this process, since both use Ray.")
        _TURN.acquire()
    try:
        yield
    finally:
        _TURN.release()


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Handle Ctrl-C after the block: after half an import every later one fails, until the notebook is restarted."""
    before, held = signal.getsignal(signal.SIGINT), list[tuple[int, object]]()
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, lambda number, place: held.append((number, place)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    for number, place in held[:1]:
        before(number, place)  # type: ignore[arg-type]  # a frame
