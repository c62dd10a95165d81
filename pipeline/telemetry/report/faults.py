"""What went wrong, by reason: a thousand equal lines say less than one line with a count and three examples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import Reason
from pipeline.failure import DECODE
from pipeline.second import ERRORS
from pipeline.storage import Store
from pipeline.telemetry.report.picks import MOST_DECODED, Key
from pipeline.telemetry.report.rows import batches

EXAMPLES = 3
LONGEST = 2000  # characters of a message or traceback that are shown
SHOWN = 30  # reasons, the most frequent; a table of more is not read
PICTURED = 12  # of them with pictures


@dataclass(frozen=True, kw_only=True)
class Example:
    """One line of the errors table."""

    media_id: str
    frame_index: int | None
    message: str
    traceback: str
    shown: Key | None  # the frame to show; None where decoding it again could end as it did in the run
    about: str  # what that frame is


@dataclass(kw_only=True)
class Fault:
    """All errors of one kind in one step."""

    step: str
    kind: str
    rows: int = 0
    whole_files: int = 0  # of them, those that concern a file as a whole
    examples: list[Example] = field(default_factory=list)


def faults(store: Store) -> list[Fault]:
    """Errors by step and kind, the most frequent first; examples are of different files where there are such."""
    found: dict[tuple[str, str], Fault] = {}
    files: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name in store.names(ERRORS):
        for batch in batches(store, f"{ERRORS}/{name}"):
            for row in batch.to_pylist():
                key = (row["step"], row["kind"])
                fault = found.setdefault(key, Fault(step=row["step"], kind=row["kind"]))
                fault.rows += 1
                fault.whole_files += row["frame_index"] is None
                if len(files[key]) < EXAMPLES and row["media_id"] not in files[key]:
                    files[key].add(row["media_id"])
                    fault.examples.append(_example(row))
    for fault in found.values():
        fault.examples.sort(key=lambda example: example.media_id)
    return sorted(found.values(), key=lambda fault: (-fault.rows, fault.step, fault.kind))


def unread_files(found: Sequence[Fault]) -> int:
    """Files that gave no frame at all."""
    return sum(fault.whole_files for fault in found if fault.step == DECODE)


def keys_of(found: Sequence[Fault]) -> list[Key]:
    """Frames to show beside the most frequent reasons."""
    return [one.shown for fault in found[:PICTURED] for one in fault.examples if one.shown is not None]


def _shown(row: Mapping[str, Any]) -> tuple[Key | None, str]:
    """A frame that stands for an error: its own, the one before it where decoding failed, or its file's first."""
    name, index, decoding = str(row["media_id"]), row["frame_index"], row["step"] == DECODE
    if row["kind"] == Reason.CRASHED or (decoding and not index):
        return None, ""
    if index is None or index >= MOST_DECODED + decoding:
        return (name, 0), "the file's first frame"
    return (name, index - decoding), "the frame before" if decoding else "the frame"


def _example(row: Mapping[str, Any]) -> Example:
    index = row["frame_index"]
    shown, about = _shown(row)
    return Example(
        media_id=str(row["media_id"]),
        frame_index=index if isinstance(index, int) else None,
        message=str(row["message"])[:LONGEST],
        traceback=str(row["traceback"])[-LONGEST:],
        shown=shown,
        about=about,
    )
