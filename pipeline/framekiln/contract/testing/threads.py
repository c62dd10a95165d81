"""The check that calls from two threads do not disturb each other.

Chance would rarely show it. So two threads go through the stage's own code line by line, in step: what one keeps on
the stage, the other meets at its next line.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType
from typing import Any

from framekiln.contract.stage import Stage
from framekiln.contract.testing.rules import nearly_equal, require
from framekiln.contract.testing.sample import StageSample

_STUCK_S = 5.0  # longest wait for the other thread's next line: it may be in a long call, or wait for this one


def check_thread_safety(stage: Stage, sample: StageSample) -> None:
    """Check that a stage which says that it is `thread_safe` gives two threads the rows that each gets alone."""
    if not stage.thread_safe:
        return
    half = sample.rows.num_rows // 2
    batches = [sample.rows.slice(half), sample.rows.slice(0, half)]
    alone, steps = [stage(batch).to_pylist() for batch in batches], _Steps(type(stage))
    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(steps.call, number, partial(stage, batch)) for number, batch in enumerate(batches)]
        together = [result.exception() or result.result().to_pylist() for result in results]
    require(
        nearly_equal(together, alone),
        "two threads gave other results than one: keep nothing on `self` in a call, or set `thread_safe = False`",
    )


class _Steps:
    """Two threads that go through a class's code in step."""

    def __init__(self, kind: type[Stage]) -> None:
        self._modules = {base.__module__ for base in kind.__mro__ if issubclass(base, Stage) and base is not Stage}
        self._changed, self._lines, self._in_step = threading.Condition(), [0, 0], True

    def call(self, number: int, call: Callable[[], Any]) -> Any:
        """Make a call in one of the threads."""

        def line(_: FrameType, event: str, __: Any) -> Any:
            if event == "line":
                self._step(number)
            return line

        sys.settrace(lambda frame, *_: line if frame.f_globals.get("__name__") in self._modules else None)
        try:
            return call()
        finally:
            sys.settrace(None)
            self._step(number, last=True)

    def _step(self, number: int, *, last: bool = False) -> None:
        """Wait until the other thread has come as far; once it does not, both go on alone."""
        with self._changed:
            self._lines[number] += 1
            self._in_step = self._in_step and not last
            self._changed.notify_all()
            mine, other = self._lines[number], 1 - number
            if not self._changed.wait_for(lambda: not self._in_step or self._lines[other] >= mine, _STUCK_S):
                self._in_step = False
