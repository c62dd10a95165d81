"""A stage called from several threads at once, as processes with a GPU do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

THREADS, ROUNDS = 4, 2


def together(call: Callable[[Any], Any], given: Sequence[Any]) -> list[list[Any]]:
    """Return the results of all threads: each calls with every input, and starts at another one."""
    start = Barrier(THREADS)

    def work(thread: int) -> list[Any]:
        start.wait()
        found: list[Any] = [None] * len(given)
        for turn in range(ROUNDS * len(given)):
            number = (thread + turn) % len(given)
            found[number] = call(given[number])
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, range(THREADS)))


def assert_calls_are_independent(call: Callable[[Any], Any], given: Sequence[Any]) -> None:
    """Check that results of threads that call at once are those of one thread."""
    alone = [call(one) for one in given]
    assert all(one != alone[0] for one in alone[1:]), "the inputs must differ in their results"
    for found in together(call, given):
        assert found == alone
