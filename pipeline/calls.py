"""Calling a stage: whether it kept its promise, which row is to blame when it raises, and how much fits into memory.

What becomes of a call, from the mildest to the worst:

    it raises            the batch is halved until the culprit is alone; a clip is one piece
    memory runs out      the same rows again in smaller calls, then in smaller chunks inside a call; what does not fit
                         even so is set aside, or goes to the CPU where the profile says so
    the process died     see `pipeline.journal`: the call is made by a child process first
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.ceilings import Ceilings, bucket_of
from pipeline.columns import KEYS
from pipeline.cutting import Cut, cuts, take_slices
from pipeline.deadline import within
from pipeline.device import release_memory
from pipeline.device.recording import Probe
from pipeline.errors import ContractError
from pipeline.failure import Failure
from pipeline.isolation import Calls
from pipeline.journal import Care
from pipeline.packet import HALO
from pipeline.raised import Raised, end_if_lost, let_go
from pipeline.readiness import ready
from pipeline.recorder import Notes
from pipeline.stage import Scope, Stage
from pipeline.step import Step
from pipeline.trial import Died, Untried, attempt


@dataclass
class Outcome:
    """What a step made of a packet's rows."""

    columns: pa.Table  # its outputs, one row for each row of the packet that is not halo
    failures: list[Failure] = field(default_factory=list)


class Caller:
    """One step's stage, called on the rows that it may see."""

    def __init__(self, step: Step, ceilings: Ceilings | None = None, probe: Probe | None = None) -> None:
        self._step, self._stage, self._probe = step, step.stage, probe
        self._ceilings = ceilings or Ceilings()
        if self._ceilings.chunks:
            self._stage.chunk_rows |= self._ceilings.chunks
        self._spare: Stage | None = None  # on the CPU, for what the GPU does not hold
        self._failures: list[Failure] = []
        self._care, self._notes, self._bucket = Care(), Notes(), 0

    def run(
        self, rows: pa.Table, left_out: NDArray[np.bool_], care: Care | None = None, notes: Notes | None = None
    ) -> Outcome:
        """Call the stage on all rows but those that are left out; their outputs are null.

        Args:
            rows: a packet's rows, halo included.
            left_out: n bools, true where a step that this one depends on failed.
            care: what is known of the packet's past; None for nothing.
            notes: take down what the calls took.

        Raises:
            ContractError: the stage returned other rows or columns than it declared.
        """
        self._failures, self._care, self._notes = [], care or Care(), notes or Notes()
        self._bucket = bucket_of(_most_pixels(rows))
        pieces: list[pa.Table] = []
        answered: list[NDArray[np.int64]] = []
        for cut in cuts(self._stage, rows, left_out, self._size):
            pieces.append(self._call(rows, cut))
            answered.append(cut.own)
        return Outcome(self._spread(pieces, answered, rows[HALO].to_numpy()), self._failures)

    def _size(self) -> int:
        return self._ceilings.allowed(self._bucket, self._step.placement.batch_rows)

    def _call(self, rows: pa.Table, cut: Cut) -> pa.Table:
        """The stage's answer for a cut, whatever it takes."""
        batch = take_slices(rows.select(self._stage.inputs), cut.indices)
        name = self._name(rows, cut)
        if self._care.suspects(name):
            result = self._apart([batch])[0]
        else:
            self._care.note(name)
            result = self._tried(cut, batch)
            self._care.note("")
        return self._settled(rows, cut, batch, result)

    def _tried(self, cut: Cut, batch: pa.Table) -> object:
        """A call that is noted; where the GPU is lost this process ends with the note unchanged, as if killed by it."""
        result = self._made(self._stage, cut, batch)
        if self._care.journaled:
            end_if_lost(result)
        return result

    def _settled(self, rows: pa.Table, cut: Cut, batch: pa.Table, result: object) -> pa.Table:
        """The answer that a call's result, or what came instead, amounts to."""
        if isinstance(result, Untried):
            return self._untried(rows, cut, batch)
        if isinstance(result, Died):
            return self._dead(rows, cut, result)
        if not isinstance(result, Raised):
            self._ceilings.worked(self._bucket, cut.keep)
            return self._checked(result, batch.num_rows).slice(0, cut.keep)
        if result.out_of_memory:
            return self._full(rows, cut, batch, result)
        return self._halved(rows, cut) if self._splits(cut) else self._set_aside(rows, cut, result)

    def _made(self, stage: Stage, cut: Cut, batch: pa.Table) -> object:
        """What a stage returned, or how it raised; never the exception itself."""
        device = self._step.placement.device if stage is self._stage else "cpu"
        started, begin = time.time(), time.perf_counter()
        try:
            with within(self._step.placement.deadline_s if self._care.journaled else 0.0):
                result = stage(batch) if self._probe is None else self._probe(stage, batch)
            self._notes.returned(stage, cut.own, device, started, time.perf_counter() - begin)
        except ContractError:
            raise
        except Exception as error:
            self._notes.dropped(stage)
            return let_go(error)
        return result

    def _splits(self, cut: Cut) -> bool:
        return self._stage.scope is Scope.ROW and cut.keep > 1

    def _halved(self, rows: pa.Table, cut: Cut) -> pa.Table:
        parts = np.array_split(cut.indices, 2)
        return pa.concat_tables([self._call(rows, Cut(part, len(part))) for part in parts])

    def _full(self, rows: pa.Table, cut: Cut, batch: pa.Table, raised: Raised) -> pa.Table:
        """After memory ran out."""
        release_memory()
        if self._splits(cut):
            self._ceilings.failed(self._bucket, cut.keep)
            self._notes.again()
            return self._halved(rows, cut)
        chunks = self._stage.chunk_rows
        if any(size > 1 for size in chunks.values()):
            chunks.update(self._ceilings.halve(self._bucket, chunks))
            self._notes.again()
            return self._call(rows, cut)
        if self._step.placement.too_large == "cpu" and self._step.placement.device != "cpu":
            self._notes.again()
            result = self._made(self._on_cpu(), cut, batch)
            if not isinstance(result, Raised):
                return self._checked(result, batch.num_rows).slice(0, cut.keep)
            raised = result
        return self._set_aside(rows, cut, raised)

    def _on_cpu(self) -> Stage:
        """The stage once more, on the CPU; it stays."""
        if self._spare is None:
            self._spare = type(self._stage)(self._stage.config)
            place = replace(self._step.placement, device="cpu", precision="full", compile=False, pin_memory=False)
            ready(self._spare, self._step.name, self._step.weights, place)
        return self._spare

    def _apart(self, batches: list[pa.Table]) -> list[object]:
        """What each call gives in a child process, for which some memory is made free."""
        release_memory()
        return attempt(Calls.of(self._step, batches), range(len(batches)))

    def _untried(self, rows: pa.Table, cut: Cut, batch: pa.Table) -> pa.Table:
        """A suspect that no child process could try: alone, in this one, until that has died of it too."""
        if self._splits(cut):
            return self._halved(rows, cut)
        if self._care.hopeless:
            return self._dead(rows, cut, Died("it was alone", ""))
        self._care.note(self._name(rows, cut))
        return self._settled(rows, cut, batch, self._tried(cut, batch))

    def _dead(self, rows: pa.Table, cut: Cut, died: Died) -> pa.Table:
        """A cut that kills: its rows one by one, each in a child's hands."""
        if not self._splits(cut):
            told = {"kind": "Died", "message": died.told(f"step {self._step.name!r}"), "traceback": died.said}
            return self._failed(rows, cut, told)
        single = [Cut(part, 1) for part in np.split(cut.indices, cut.keep)]
        batches = [take_slices(rows.select(self._stage.inputs), one.indices) for one in single]
        results = self._apart(batches)
        answers = zip(single, batches, results, strict=True)
        return pa.concat_tables([self._settled(rows, one, batch, result) for one, batch, result in answers])

    def _set_aside(self, rows: pa.Table, cut: Cut, raised: Raised) -> pa.Table:
        """A clip is one piece, so each of its frames gets a line."""
        return self._failed(rows, cut, raised.told(self._step))

    def _failed(self, rows: pa.Table, cut: Cut, told: dict[str, str]) -> pa.Table:
        names = rows[KEYS[0]].take(pa.array(cut.own)).to_pylist()
        frames = rows[KEYS[1]].take(pa.array(cut.own)).to_pylist()
        about = {"step": self._step.name, **told}
        self._failures += [
            Failure(media_id=name, frame_index=frame, **about) for name, frame in zip(names, frames, strict=True)
        ]
        return nulls(self._stage.outputs, cut.keep)

    def _name(self, rows: pa.Table, cut: Cut) -> str:
        """What a call is called in the journal: the same in every attempt at the packet."""
        if not self._care.kept:
            return ""
        media_id, frame = (rows[key][int(cut.indices[0])].as_py() for key in KEYS)
        return f"{self._step.name}: {cut.keep} from frame {frame} of {media_id}"

    def _checked(self, result: object, count: int) -> pa.Table:
        declared = self._stage.outputs
        if not isinstance(result, pa.Table):
            kind = type(result).__name__
            raise ContractError(f"Step {self._step.name!r} returned a {kind} where the contract asks for a Table.")
        if result.schema.names != declared.names or result.schema.types != declared.types:
            both = f"declared: {_flat(declared)}\nreturned: {_flat(result.schema)}"
            raise ContractError(f"Step {self._step.name!r} broke its promise.\n{both}")
        if result.num_rows != count:
            raise ContractError(f"Step {self._step.name!r} was given {count} rows and returned {result.num_rows}.")
        return result

    def _spread(self, pieces: list[pa.Table], answered: list[NDArray[np.int64]], halo: NDArray[np.bool_]) -> pa.Table:
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


def nulls(schema: pa.Schema, count: int) -> pa.Table:
    """A table of nulls."""
    return pa.table([pa.nulls(count, item.type) for item in schema], schema=schema)


def _most_pixels(rows: pa.Table) -> int:
    """Of the largest picture."""
    return int(pc.max(pc.multiply(rows["height"].cast(pa.int64()), rows["width"].cast(pa.int64()))).as_py() or 0)


def _flat(schema: pa.Schema) -> str:
    return ", ".join(f"{item.name} {item.type}" for item in schema)
