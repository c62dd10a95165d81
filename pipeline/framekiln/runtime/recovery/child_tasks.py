"""Calls of a stage made one by one in child processes, to tell those that kill a process from those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from framekiln.planning.step import Step
from framekiln.runtime.recovery.captured_error import CapturedError
from framekiln.runtime.recovery.child_process import ChildDied, ChildProcess
from framekiln.runtime.stage_setup import set_up, share_gpu

_SET_UP_S = 1800.0  # imports, weights, and a model that is compiled, on a busy machine


class Task(Protocol):
    """Numbered calls for a child process; pickled."""

    timeout_s: float  # of one call; 0 for no limit

    def set_up(self) -> None:
        """Load what all calls need."""

    def call(self, number: int) -> Any:
        """Make one call; its result is pickled."""


@dataclass(frozen=True)
class NotTried:
    """The result of a call that no child process made, since none could be set up."""

    last_lines: str


def call_in_children(task: Task, numbers: Sequence[int]) -> list[Any]:
    """Return the results of a task's calls: for each its own, `CapturedError`, `ChildDied` or `NotTried`.

    A child that dies is followed by another one for the remaining calls. If a child cannot be set up, as beside a
    model that fills the GPU, no call is blamed for it.
    """
    results: dict[int, Any] = {}
    while waiting := [number for number in numbers if number not in results]:
        with ChildProcess(task) as child:
            ready = child.call("set_up", timeout_s=_SET_UP_S)
            if isinstance(ready, ChildDied | CapturedError):
                output = ready.traceback if isinstance(ready, CapturedError) else ready.last_lines
                results |= dict.fromkeys(waiting, NotTried(output))
                break
            for number in waiting:
                result = results[number] = _result(child.call("call", number, timeout_s=task.timeout_s))
                if isinstance(result, ChildDied):
                    break
    return [results[number] for number in numbers]


def _result(result: Any) -> Any:
    """Return a call's result; a process that lost the GPU is as good as dead."""
    if isinstance(result, CapturedError) and result.broken_gpu:
        return ChildDied("it lost the GPU", result.traceback)
    return result


@dataclass
class StageCalls:
    """A task that calls a stage."""

    step: Step  # with a stage that has not been set up
    batches: Sequence[bytes]  # Arrow IPC: pickled slices would bring the whole packet with them
    extra: tuple[Any, ...]  # further arguments of each call: tables of other steps, the file's reader
    timeout_s: float

    @classmethod
    def of(cls, step: Step, batches: Sequence[pa.Table], extra: Sequence[Any] = ()) -> StageCalls:
        """Return the task of a step, which may be set up in this process already."""
        timeout_s = step.placement.timeout_s if step.first_pass else 0.0
        step = step.placed(compile=False)  # for a few calls it would not pay
        return cls(not_set_up(step), [_packed(batch) for batch in batches], tuple(extra), timeout_s)

    def set_up(self) -> None:
        """Load the stage's model once more."""
        share_gpu([self.step])
        set_up(self.step)

    def call(self, number: int) -> Any:
        """Call the stage on one batch."""
        return self.step.stage(pa.ipc.open_stream(self.batches[number]).read_all(), *self.extra)


def not_set_up(step: Step) -> Step:
    """Return the step with a stage that was not set up: models need not be picklable."""
    return replace(step, stage=type(step.stage)(step.stage.config))


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
