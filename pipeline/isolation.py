"""What a child process is given to try: calls of a stage on rows, on a file's tables, or a file's decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pipeline.readiness import set_up, share_gpu
from pipeline.step import Step


@dataclass
class Calls:
    """A first-pass stage, called on batches."""

    step: Step  # with a stage that has not been set up
    batches: Sequence[bytes]  # Arrow IPC: pickled slices would bring the whole packet with them
    deadline_s: float

    @classmethod
    def of(cls, step: Step, batches: Sequence[pa.Table]) -> Calls:
        """The task of a step that may be set up in this process."""
        return cls(anew(step), [_packed(batch) for batch in batches], step.placement.deadline_s)

    def set_up(self) -> None:
        """Load the stage's model, once more."""
        share_gpu([self.step])
        set_up(self.step)

    def call(self, number: int) -> pa.Table:
        """The stage's own answer."""
        return self.step.stage(pa.ipc.open_stream(self.batches[number]).read_all())


@dataclass
class FileCall:
    """A second-pass stage, called on what it is given for a file."""

    step: Step
    rows: bytes
    more: tuple[Any, ...]  # tables of other steps, the file's reader
    deadline_s: float = 0.0

    @classmethod
    def of(cls, step: Step, rows: pa.Table, more: Sequence[Any]) -> FileCall:
        """The task of a step that may be set up in this process."""
        return cls(anew(step), _packed(rows), tuple(more))

    def set_up(self) -> None:
        """Load the stage's model, once more."""
        share_gpu([self.step])
        set_up(self.step)

    def call(self, number: int) -> Any:  # noqa: ARG002 - there is one
        """The stage's own answer."""
        return self.step.stage(pa.ipc.open_stream(self.rows).read_all(), *self.more)


def anew(step: Step) -> Step:
    """The step with a stage that was not set up: models need not be picklable."""
    return replace(step, stage=type(step.stage)(step.stage.config))


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
