"""Rows of the errors table: files that could not be read and rows that failed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from framekiln.contract.columns import field
from framekiln.contract.errors import Reason

SCHEMA = pa.schema(
    [
        field("media_id", pa.string(), "path of the file relative to the input root", nullable=False),
        field("frame_index", pa.int32(), "the frame, where only one is concerned; null for a whole file"),
        field("step", pa.string(), "the step that failed; 'decode' for a file that could not be read", nullable=False),
        field("kind", pa.string(), "reason of a media error, or the exception's class", nullable=False),
        field("message", pa.string(), "the error message", nullable=False),
        field("traceback", pa.string(), "where in the code it was raised; empty for a media error", nullable=False),
    ]
)

ERRORS_SCHEMA = pa.schema(
    [
        *SCHEMA,
        field("input", pa.string(), "where the file was read from, as a path or URL; null for the whole run"),
        field("fingerprint", pa.string(), "hash of the step's version, settings, weights and inputs"),
    ]
)
"""Schema of the errors table: failures, each with its input and fingerprint."""

PASSED_OVER = Reason.PASSED_OVER.value
"""The kind of rows that are no errors: files that are no media."""

DECODE = "decode"
"""Name of decoding among the steps."""

_LONGEST = 160  # most characters of a reason: messages that name each file would fill the driver's memory


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One row of the errors table."""

    media_id: str
    frame_index: int | None = None
    step: str = DECODE
    kind: str
    message: str
    traceback: str = ""


def reasons(failures: Sequence[Failure]) -> Counter[str]:
    """Count failures by kind and first line of the message."""
    return Counter(f"{item.kind}: {item.message.strip().partition(chr(10))[0][:_LONGEST]}" for item in failures)


def traced(failures: pa.Table, inputs: Mapping[str, str], fingerprints: Mapping[str, str]) -> pa.Table:
    """Convert a table of `SCHEMA` to `ERRORS_SCHEMA`, with the step and the path or URL of each media_id."""
    where = [inputs.get(name) for name in failures["media_id"].to_pylist()]
    which = [fingerprints.get(name) for name in failures["step"].to_pylist()]
    columns = [*failures.select(SCHEMA.names).columns, pa.array(where, pa.string()), pa.array(which, pa.string())]
    return pa.table(columns, schema=ERRORS_SCHEMA)


def to_table(failures: Sequence[Failure]) -> pa.Table:
    """Return failures as a table of `SCHEMA`."""
    return pa.Table.from_pylist([asdict(failure) for failure in failures], schema=SCHEMA)
