"""Single calls of a stage in child processes, to find the calls that kill a process."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from framekiln.planning.step import Step
from framekiln.runtime.recovery.captured_error import CapturedError
from framekiln.runtime.recovery.child_process import ChildDied, ChildProcess
from framekiln.runtime.stage_setup import set_up, share_gpu

SET_UP_S = 1800.0  # s for imports, weights, and a compiled model, on a busy machine


class ChildCalls(Protocol):
    """Numbered calls for a child process; pickled."""

    timeout_s: float  # timeout of one call; 0 for no limit

    def set_up(self) -> None:
        """Load what all calls need."""

    def call(self, number: int) -> Any:
        """Make one call; its result is pickled."""


@dataclass(frozen=True)
class NotTried:
    """The result of a call that no child process made, since none could be set up."""

    last_lines: str


def call_in_children(calls: ChildCalls, count: int) -> list[Any]:
    """Return the result of each call, from number 0 on: its value, `CapturedError`, `ChildDied` or `NotTried`.

    After a death another child makes the remaining calls. If no child can be set up, for example beside a model that
    fills the GPU, no call is blamed for it.
    """
    results: list[Any] = []
    while len(results) < count:
        with ChildProcess(calls) as child:
            ready = child.call("set_up", timeout_s=SET_UP_S)
            if isinstance(ready, ChildDied | CapturedError):
                output = ready.traceback if isinstance(ready, CapturedError) else ready.last_lines
                return [*results, *(NotTried(output) for _ in range(count - len(results)))]
            for number in range(len(results), count):
                result = child.call("call", number, timeout_s=calls.timeout_s)
                if isinstance(result, CapturedError) and result.broken_gpu:  # the process can compute no more
                    result = ChildDied("it lost the GPU", result.traceback)
                results.append(result)
                if isinstance(result, ChildDied):
                    break
    return results


@dataclass
class StageCalls:
    """Calls of a stage."""

    step: Step  # its stage has not been set up
    batches: Sequence[pa.Table]  # in buffers of their own: pickled slices would bring the whole packet along
    extra: tuple[Any, ...]  # further arguments of each call: tables of other steps, the file's reader
    timeout_s: float

    @classmethod
    def of(cls, step: Step, batches: Sequence[pa.Table], extra: Sequence[Any] = ()) -> "StageCalls":
        """Return calls of a step's stage, which may already be set up in this process."""
        timeout_s = step.placement.timeout_s if step.first_pass else 0.0
        step = step.placed(compile=False)  # does not pay for a few calls
        own = [batch.take(pa.array(range(batch.num_rows), pa.int64())) for batch in batches]
        return cls(not_set_up(step), own, tuple(extra), timeout_s)

    def set_up(self) -> None:
        """Load the stage's model again."""
        share_gpu([self.step])
        set_up(self.step)

    def call(self, number: int) -> Any:
        return self.step.stage(self.batches[number], *self.extra)


def not_set_up(step: Step) -> Step:
    """Return the step with a stage not set up: models need not be picklable."""
    return replace(step, stage=type(step.stage)(step.stage.config))
