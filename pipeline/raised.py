"""An exception put into words and let go.

Its traceback holds every frame it came through, and they hold the tensors that filled the memory: a call that is tried
again in smaller pieces must not find them still there.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass

from pipeline.device import is_broken_gpu, is_out_of_memory
from pipeline.step import Step

BROKEN_GPU = 71
"""Exit code of a process whose GPU is lost, so that another one takes its work up; EX_OSERR of sysexits.h."""

_LINES = 12  # of a traceback: enough to reach our frame from a library's


@dataclass(frozen=True, kw_only=True)
class Raised:
    """What an exception said, without the exception."""

    kind: str
    message: str
    traceback: str
    out_of_memory: bool = False
    broken_gpu: bool = False  # nothing in this process can use the GPU any more

    def told(self, step: Step) -> dict[str, str]:
        """Kind, message and traceback for the errors table; of memory that ran out, one sentence."""
        if not self.out_of_memory:
            return {"kind": self.kind, "message": self.message, "traceback": self.traceback}
        on_gpu = step.placement.device == "cuda"
        where, fix = ("the GPU's", "more `vram_gb`") if on_gpu else ("the machine's", "fewer workers")
        message = f"{where} memory does not hold this alone in step {step.name!r}; give it {fix} in the profile"
        return {"kind": "OutOfMemory", "message": message, "traceback": ""}


def end_if_lost(result: object) -> None:
    """End this process where a call's result says that its GPU is lost: only another one can use it again."""
    if isinstance(result, Raised) and result.broken_gpu:
        os._exit(BROKEN_GPU)


def let_go(error: BaseException) -> Raised:
    """An exception's words; the local variables of all frames it came through are forgotten."""
    told = Raised(
        kind=type(error).__name__,
        message=str(error),
        traceback="".join(traceback.format_exception(error)[-_LINES:]),
        out_of_memory=is_out_of_memory(error),
        broken_gpu=is_broken_gpu(error),
    )
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            one.__traceback__ = None
            waiting += [one.__cause__, one.__context__]
    return told
