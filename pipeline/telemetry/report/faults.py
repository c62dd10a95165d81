"""What went wrong, by reason: a thousand equal lines say less than one line with a count and three examples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.failure import DECODE
from pipeline.second import ERRORS
from pipeline.storage import Store
from pipeline.telemetry.report.rows import batches

EXAMPLES = 3
LONGEST = 2000  # characters of a message or traceback that are shown


@dataclass(frozen=True, kw_only=True)
class Example:
    """One line of the errors table."""

    media_id: str
    frame_index: int | None
    message: str
    traceback: str


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


def _example(row: dict[str, object]) -> Example:
    index = row["frame_index"]
    return Example(
        media_id=str(row["media_id"]),
        frame_index=index if isinstance(index, int) else None,
        message=str(row["message"])[:LONGEST],
        traceback=str(row["traceback"])[-LONGEST:],
    )
