"""Objects in child processes, set up side by side and then measured one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import ExitStack
from itertools import islice
from typing import Any

from framekiln.lab.sweep.child import CellChild, reason_of
from framekiln.runtime.recovery.captured_error import CapturedError
from framekiln.runtime.recovery.child_process import ChildDied

_TIMEOUT_S = 200.0  # of one call, below the limit of the longest steps; LaMa is compiled for ten shapes


class MeasureError(Exception):
    """The reason why a child process gave no figures."""


def call(child: CellChild, method: str) -> Any:
    """Return the result of a method of the object that a child process holds.

    Raises:
        MeasureError: it raised, or its process died.
    """
    answer = child.call(method, timeout_s=_TIMEOUT_S)
    if isinstance(answer, ChildDied | CapturedError):
        raise MeasureError(reason_of(answer))
    return answer


def measured(
    held: Mapping[str, object],
    at_once: int,
    *,
    methods: Sequence[str] = ("prepare", "measure"),
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, Any]]:
    """Yield the result of the last method for each object by name, or a `MeasureError`.

    The first method is called in `at_once` processes side by side, such as a set-up that compiles on the CPU. The
    others are called while no other process uses the device. Without others, results come as they are ready, so that a
    step that is ended keeps them.
    """
    waiting = iter(held.items())
    while group := dict(islice(waiting, at_once)):
        with ExitStack() as stack, ThreadPoolExecutor(len(group)) as pool:
            children = {name: stack.enter_context(CellChild.of(held, environment)) for name, held in group.items()}
            first = {pool.submit(_result, child, methods[:1]): name for name, child in children.items()}
            if methods[1:]:
                wait(first)
            for future in as_completed(first):
                name, answer = first[future], future.result()
                is_ready = not isinstance(answer, MeasureError) and methods[1:]
                yield name, _result(children[name], methods[1:]) if is_ready else answer
                children[name].end()  # its memory is the next one's


def _result(child: CellChild, methods: Sequence[str]) -> Any:
    try:
        return [call(child, method) for method in methods][-1]
    except MeasureError as error:
        return error
