"""Errors of a run by step and kind, each with a count and up to three examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from framekiln.contract.errors import Reason
from framekiln.contract.output_names import ERRORS
from framekiln.contract.row_errors import DECODE, ERRORS_SCHEMA, PASSED_OVER
from framekiln.output.object_store import Store
from framekiln.reporting.html.gallery.findings import MOST_DECODED, FrameKey
from framekiln.reporting.table_rows import batches

EXAMPLES = 3
LONGEST = 2000  # characters of a message or traceback that are shown
MOST_GROUPS = 30  # shown, the most frequent
_WITH_IMAGES = 12  # of these


@dataclass(kw_only=True)
class ErrorGroup:
    """All errors of one kind in one step."""

    step: str
    kind: str
    rows: int = 0
    whole_files: int = 0  # errors that concern a whole file
    examples: list[dict[str, Any]] = field(default_factory=list)  # rows of the table, each with `frame` and `caption`


def error_groups(store: Store) -> list[ErrorGroup]:
    """Return errors by step and kind, the most frequent first, with examples of different files."""
    groups: dict[tuple[str, str], ErrorGroup] = {}
    for name in store.names(ERRORS):
        for batch in batches(store, f"{ERRORS}/{name}", expected=ERRORS_SCHEMA):
            for row in batch.filter(pc.not_equal(batch["kind"], PASSED_OVER)).to_pylist():
                key = (row["step"], row["kind"])
                group = groups.setdefault(key, ErrorGroup(step=row["step"], kind=row["kind"]))
                group.rows += 1
                group.whole_files += row["frame_index"] is None
                shown = [example["media_id"] for example in group.examples]
                if len(shown) < EXAMPLES and row["media_id"] not in shown:
                    frame, caption = _frame(row)
                    texts = {"message": str(row["message"])[:LONGEST], "traceback": str(row["traceback"])[-LONGEST:]}
                    group.examples.append({**row, **texts, "frame": frame, "caption": caption})
    for group in groups.values():
        group.examples.sort(key=lambda example: example["media_id"])
    return sorted(groups.values(), key=lambda group: (-group.rows, group.step, group.kind))


def unread_files(groups: Sequence[ErrorGroup]) -> int:
    """Return the number of files without any frame."""
    return sum(group.whole_files for group in groups if group.step == DECODE)


def frames_of(groups: Sequence[ErrorGroup]) -> list[FrameKey]:
    """Return the frames to show beside the most frequent errors."""
    examples = (example for group in groups[:_WITH_IMAGES] for example in group.examples)
    return [example["frame"] for example in examples if example["frame"] is not None]


def _frame(row: Mapping[str, Any]) -> tuple[FrameKey | None, str]:
    """Return the frame to show for an error, and a caption; None where decoding it again could fail as in the run.

    It is the error's own frame, the one before it where decoding failed, or the file's first.
    """
    name, index, decoding = str(row["media_id"]), row["frame_index"], row["step"] == DECODE
    if row["kind"] == Reason.CRASHED or (decoding and not index):
        return None, ""
    if index is None or index >= MOST_DECODED + decoding:
        return (name, 0), "the file's first frame"
    return (name, index - decoding), "the frame before" if decoding else "the frame"
