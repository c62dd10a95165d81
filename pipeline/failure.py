"""What went wrong, as a row: a run over a million files meets every fault there is and must be able to say which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from pipeline.columns import field

SCHEMA = pa.schema(
    [
        field("media_id", pa.string(), "path of the file relative to the input root", nullable=False),
        field("frame_index", pa.int32(), "the frame, where only one is concerned; null for a whole file"),
        field("step", pa.string(), "the step that failed; 'decode' for a file that could not be read", nullable=False),
        field("kind", pa.string(), "reason of a media error, or the exception's class", nullable=False),
        field("message", pa.string(), "what was said", nullable=False),
        field("traceback", pa.string(), "where in the code; empty for a media error", nullable=False),
    ]
)

DECODE = "decode"
"""The name under which decoding appears among the steps."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One line of the errors table."""

    media_id: str
    frame_index: int | None = None
    step: str = DECODE
    kind: str
    message: str
    traceback: str = ""


def to_table(failures: Sequence[Failure]) -> pa.Table:
    """Failures as a table of `SCHEMA`."""
    return pa.Table.from_pylist([asdict(failure) for failure in failures], schema=SCHEMA)
