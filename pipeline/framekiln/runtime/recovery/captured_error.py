"""An exception reduced to text, so that its memory can be freed.

A traceback holds every frame of the exception's way, and frames hold the tensors that filled the memory. A retry in
smaller batches must not find them there.
"""

import traceback
from dataclasses import dataclass, replace

from framekiln.contract.row_errors import Failure
from framekiln.device import is_broken_gpu, is_out_of_memory, message_of
from framekiln.planning.step import Step

BROKEN_GPU = 71
"""Exit code after the loss of the GPU: another process takes over the work; EX_OSERR of sysexits.h."""

_ESCAPED = "backslashreplace"  # for characters that UTF-8 cannot encode, such as in a path with undecodable bytes
_TRACEBACK_ENTRIES = 12  # enough to reach our frame from a library's
_LONGEST = 10_000
"""Most characters of a message or a traceback: each failed row has both, and a message may hold a whole array."""


@dataclass(frozen=True, kw_only=True)
class CapturedError:
    """The text of an exception, as in a line of the errors table."""

    kind: str
    message: str
    traceback: str
    out_of_memory: bool = False
    broken_gpu: bool = False  # nothing in this process can use the GPU any more

    def explained(self, step: Step) -> "CapturedError":
        """Return the error for the errors table: out-of-memory becomes one sentence with its fix."""
        if not self.out_of_memory:
            return self
        on_gpu = step.placement.device == "cuda"
        where = "the GPU's" if on_gpu else "the machine's"
        fix = "give it more `vram_gb` in the profile" if on_gpu else "compute fewer steps at once with --stages"
        message = f"{where} memory does not hold this alone in step {step.name!r}; {fix}"
        own = f" ({self.message})" if self.message else ""
        return replace(self, kind="OutOfMemory", message=message + own)

    def failure(self, step: str, media_id: str, frame_index: int | None = None) -> Failure:
        """Return the line of the errors table for a row, or for a whole file."""
        return Failure(
            media_id=media_id,
            frame_index=frame_index,
            step=step,
            kind=self.kind,
            message=self.message,
            traceback=self.traceback,
        )


def capture(error: BaseException) -> CapturedError:
    """Return an exception's text, and clear the local variables of all its frames."""
    entries = traceback.format_exception(error)[-_TRACEBACK_ENTRIES:]
    captured = CapturedError(
        kind=type(error).__name__,
        message=_shorten(message_of(error)),
        traceback=_shorten("".join(entries).encode(errors=_ESCAPED).decode()),
        out_of_memory=is_out_of_memory(error),
        broken_gpu=is_broken_gpu(error),
    )
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            traceback.clear_frames(link.__traceback__)
            link.__traceback__ = None
            chain += [link.__cause__, link.__context__]
    return captured


def _shorten(text: str) -> str:
    """Return the beginning and end of a long text; a short one unchanged."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
