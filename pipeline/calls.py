"""Calling a stage: which rows go into one call, whether it kept its promise, and which row is to blame when it raises.

Rows are handed over as slices of the packet, so the pixels of a call are never copied to make it.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline import weights as weights_lock
from pipeline.columns import KEYS
from pipeline.device import is_out_of_memory, release_memory
from pipeline.errors import ContractError, SetupError
from pipeline.failure import Failure
from pipeline.packet import HALO
from pipeline.stage import Scope
from pipeline.step import Step

Indices = NDArray[np.int64]
_LINES = 12  # of a traceback: enough to reach our frame from a library's


@dataclass
class Outcome:
    """What a step made of a packet's rows."""

    columns: pa.Table  # its outputs, one row for each row of the packet that is not halo
    failures: list[Failure] = field(default_factory=list)


def set_up(step: Step) -> None:
    """Make a step's stage ready in this process.

    Raises:
        SetupError: it could not load what it needs.
        WeightsError: its weights are not on this node.
    """
    step.stage.chunk_rows.update(step.chunks)
    weights = {name: _here(name, path) for name, path in step.weights.items()}
    try:
        step.stage.setup(weights, step.placement)
    except Exception as error:
        raise SetupError(f"Step {step.name!r} could not be set up: {type(error).__name__}: {error}") from error
    step.stage.seconds.clear()


def _here(name: str, path: Path) -> Path:
    """The driver's path where this node has it too, else what this node has by the same name and hash."""
    return path if path.exists() else weights_lock.resolve([name])[name]


class Caller:
    """One step's stage, called on the rows that it may see."""

    def __init__(self, step: Step) -> None:
        self._step, self._stage = step, step.stage
        self._failures: list[Failure] = []

    def run(self, rows: pa.Table, failed: NDArray[np.bool_]) -> Outcome:
        """Call the stage on all rows but those whose inputs failed; their outputs are null.

        Args:
            rows: a packet's rows, halo included.
            failed: n bools, true where a step that this one depends on failed.

        Raises:
            ContractError: the stage returned other rows or columns than it declared.
        """
        self._failures = []
        halo = rows[HALO].to_numpy()
        pieces: list[pa.Table] = []
        answered: list[Indices] = []
        for indices, keep in self._cuts(rows, halo, failed):
            pieces.append(self._call(rows, indices, keep))
            answered.append(indices[:keep])
        return Outcome(self._spread(pieces, answered, halo), self._failures)

    def _cuts(
        self, rows: pa.Table, halo: NDArray[np.bool_], failed: NDArray[np.bool_]
    ) -> Iterator[tuple[Indices, int]]:
        """Row numbers of each call, and how many of them it answers for; the rest is halo."""
        if self._stage.scope is Scope.ROW:
            usable = np.flatnonzero(~halo & ~failed)
            size = self._step.placement.batch_rows
            for start in range(0, len(usable), size):
                yield (part := usable[start : start + size]), len(part)
            return
        for start, stop in clip_bounds(rows):
            inside = np.arange(start, stop)
            own = inside[~halo[start:stop] & ~failed[start:stop]]
            ahead = inside[halo[start:stop]][: self._stage.halo]
            if len(own):
                yield np.concatenate([own, ahead]), len(own)

    def _call(self, rows: pa.Table, indices: Indices, keep: int) -> pa.Table:
        batch = take_slices(rows.select(self._stage.inputs), indices)
        try:
            result = self._stage(batch)
        except ContractError:
            raise
        except Exception as error:
            if is_out_of_memory(error) and self._smaller(len(indices)):
                return self._call(rows, indices, keep)
            return self._blame(rows, indices, keep, error)
        self._check(result, batch.num_rows)
        return result.slice(0, keep)

    def _smaller(self, rows: int) -> bool:
        """After memory ran out: make the stage's chunks half as large; false where a smaller call is tried first."""
        release_memory()
        chunks = self._stage.chunk_rows
        if (self._stage.scope is Scope.ROW and rows > 1) or all(size == 1 for size in chunks.values()):
            return False
        chunks.update({kind: max(1, size // 2) for kind, size in chunks.items()})
        return True

    def _blame(self, rows: pa.Table, indices: Indices, keep: int, error: Exception) -> pa.Table:
        """Halve a failing batch until the culprit is alone; a clip is one piece, so each of its frames gets a line."""
        if self._stage.scope is Scope.ROW and len(indices) > 1:
            middle = len(indices) // 2
            return pa.concat_tables(
                [self._call(rows, part, len(part)) for part in (indices[:middle], indices[middle:])]
            )
        about = {"step": self._step.name, **self._told(error)}
        keys = rows.select(KEYS).take(pa.array(indices[:keep])).to_pylist()
        self._failures += [Failure(media_id=key["media_id"], frame_index=key["frame_index"], **about) for key in keys]
        return nulls(self._stage.outputs, keep)

    def _told(self, error: Exception) -> dict[str, str]:
        """Kind, message and traceback; of memory that ran out, one sentence."""
        if not is_out_of_memory(error):
            trace = "".join(traceback.format_exception(error)[-_LINES:])
            return {"kind": type(error).__name__, "message": str(error), "traceback": trace}
        on_gpu = self._step.placement.device == "cuda"
        where, fix = ("the GPU's", "more `vram_gb`") if on_gpu else ("the machine's", "fewer workers")
        message = f"{where} memory does not hold this alone in step {self._step.name!r}; give it {fix} in the profile"
        return {"kind": "OutOfMemory", "message": message, "traceback": ""}

    def _check(self, result: object, count: int) -> None:
        declared = self._stage.outputs
        if not isinstance(result, pa.Table):
            kind = type(result).__name__
            raise ContractError(f"Step {self._step.name!r} returned a {kind} where the contract asks for a Table.")
        if result.schema.names != declared.names or result.schema.types != declared.types:
            both = f"declared: {_flat(declared)}\nreturned: {_flat(result.schema)}"
            raise ContractError(f"Step {self._step.name!r} broke its promise.\n{both}")
        if result.num_rows != count:
            raise ContractError(f"Step {self._step.name!r} was given {count} rows and returned {result.num_rows}.")

    def _spread(self, pieces: list[pa.Table], answered: list[Indices], halo: NDArray[np.bool_]) -> pa.Table:
        """Results in the order of the packet's own rows, null where there was no call."""
        own = np.flatnonzero(~halo)
        schema = self._stage.outputs
        if not pieces:
            return nulls(schema, len(own))
        order = np.concatenate(answered)
        place = np.full(len(halo), -1)
        place[order] = np.arange(len(order))
        wanted = place[own]
        table = pa.concat_tables([piece.cast(schema) for piece in pieces])
        return table.take(pa.array(wanted, mask=wanted < 0))


def clip_bounds(rows: pa.Table) -> Iterator[tuple[int, int]]:
    """Start and stop of each clip with the halo that follows it."""
    if not rows.num_rows:
        return
    media = rows[KEYS[0]].combine_chunks().dictionary_encode()
    codes = np.concatenate(
        [chunk.indices.to_numpy() for chunk in (media.chunks if isinstance(media, pa.ChunkedArray) else [media])]
    )
    clips = rows["clip_index"].to_numpy()
    edges = np.flatnonzero((np.diff(codes) != 0) | (np.diff(clips) != 0)) + 1
    yield from zip([0, *edges.tolist()], [*edges.tolist(), rows.num_rows], strict=True)


def take_slices(rows: pa.Table, indices: Indices) -> pa.Table:
    """Rows by rising number, as slices of the same buffers."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    runs = np.split(indices, breaks)
    return pa.concat_tables([rows.slice(int(run[0]), len(run)) for run in runs if len(run)] or [rows.slice(0, 0)])


def nulls(schema: pa.Schema, count: int) -> pa.Table:
    """A table of nulls."""
    return pa.table([pa.nulls(count, item.type) for item in schema], schema=schema)


def _flat(schema: pa.Schema) -> str:
    return ", ".join(f"{item.name} {item.type}" for item in schema)
