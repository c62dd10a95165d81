"""A thread for each film that a test writes.

SVT-AV1 gives the thread that opens it real-time priority where root calls it (SCHED_FIFO, 99). All that this thread
starts inherits it. As pytest's own thread it would keep the cores from every other process until pytest ends.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import ParamSpec, TypeVar

P, R = ParamSpec("P"), TypeVar("R")


def in_own_thread(write: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run in a thread of its own, which then ends."""

    @wraps(write)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(write, *args, **kwargs).result()

    return run
