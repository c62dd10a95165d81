"""Calling a second-pass stage for one file, or for the whole run, and what becomes of a call that fails.

As in the first pass (`pipeline.calls`), but there is nothing to halve: a file's rows belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pipeline.device import release_memory
from pipeline.errors import ContractError
from pipeline.failure import Failure
from pipeline.isolation import FileCall
from pipeline.journal import Care
from pipeline.raised import Raised, end_if_lost, let_go
from pipeline.step import Step
from pipeline.trial import Died, Untried, attempt


def called(step: Step, media_id: str, rows: pa.Table, more: Sequence[Any], care: Care) -> Any:
    """What a step's stage gives for a file, or the failure that it amounts to.

    Args:
        step: set up in this process.
        media_id: the file; empty for the whole run.
        rows: its rows of the step's inputs.
        more: what the stage is given after them.
        care: what is known of the past of this piece of work.
    """
    name = f"{step.name}: {media_id}"
    result: Any = Untried("")
    if care.suspects(name):
        release_memory()
        (result,) = attempt(FileCall.of(step, rows, more), [0])
        if isinstance(result, Untried) and care.hopeless:
            result = Died("it was alone", result.said)
    if isinstance(result, Untried):
        care.note(name)
        result = _fitted(step, rows, more)
        if care.journaled:
            end_if_lost(result)  # with the note unchanged, as if killed by it
        care.note("")
    told: dict[str, Any]
    if isinstance(result, Died):
        told = {"kind": "Died", "message": result.told(f"step {step.name!r}"), "traceback": result.said}
    elif isinstance(result, Raised):
        told = result.told(step)
    else:
        return result
    return Failure(media_id=media_id, step=step.name, **told)


def _fitted(step: Step, rows: pa.Table, more: Sequence[Any]) -> Any:
    """What the stage gives, or how it raised; in smaller chunks where memory ran out."""
    chunks = step.stage.chunk_rows
    while True:
        try:
            return step.stage(rows, *more)
        except ContractError:
            raise
        except Exception as error:
            raised = let_go(error)
        if not (raised.out_of_memory and any(size > 1 for size in chunks.values())):
            return raised
        release_memory()
        chunks.update({kind: max(1, size // 2) for kind, size in chunks.items()})
