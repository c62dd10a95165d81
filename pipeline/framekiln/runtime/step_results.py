"""A first-pass step's results for a packet: computed by its stage, or read from its part.

A part is a step's columns for a packet, its failures, and encoded files. To compute one, the stage is called on all
rows; its result is checked, put in the packet's order, and added to the packet.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.columns import KEYS
from framekiln.contract.errors import ContractError
from framekiln.contract.packet import HALO
from framekiln.contract.row_errors import Failure
from framekiln.contract.stage import Scope, Stage
from framekiln.planning.step import Step
from framekiln.profiling.step_work import StepWork, pixels
from framekiln.runtime.recovery.attempt_log import Attempt
from framekiln.runtime.recovery.batch_limits import bucket_of
from framekiln.runtime.recovery.captured_error import CapturedError
from framekiln.runtime.stage_caller import Batch, CallData, StageCaller

FAILED = "failed"
"""Internal column of a packet: for each row, the names of steps without a value: they failed on it or left it out."""


@dataclass
class Outcome:
    """A step's results for a packet."""

    columns: pa.Table  # its outputs, a row for each row of the packet without halo
    failures: list[Failure] = field(default_factory=list)
    unchosen: NDArray[np.bool_] | None = None  # n bools, true for rows that a condition leaves out; None: no condition


class PacketCaller(StageCaller):
    """One first-pass step, called on packets."""

    def run(
        self, rows: pa.Table, left_out: NDArray[np.bool_], attempt: Attempt | None = None, work: StepWork | None = None
    ) -> Outcome:
        """Call the stage on all rows not `left_out`; the others get null outputs.

        Raises ContractError: the stage returned other rows or columns than it declared.
        """
        bucket = bucket_of(int(pixels(rows).max(initial=0)))
        data = CallData(rows=rows, bucket=bucket, attempt=attempt or Attempt(), work=work or StepWork())
        most = self._step.placement.batch
        tables: list[pa.Table] = []
        places: list[NDArray[np.int64]] = []
        failures: list[Failure] = []
        for whole in batches(self._stage, rows, left_out, lambda: self._limits.allowed(data.bucket, most)):
            for batch, result in self.settle(data, whole):
                if isinstance(result, CapturedError):  # a clip fails as a whole
                    keys = zip(*(rows[key].take(pa.array(batch.own)).to_pylist() for key in KEYS), strict=True)
                    failures += [result.failure(self._step.name, media_id, frame) for media_id, frame in keys]
                    continue
                tables.append(self._check(result, len(batch.indices)).slice(0, batch.keep))
                places.append(batch.own)
        return Outcome(self._put_in_order(tables, places, rows[HALO].to_numpy()), failures)

    def _check(self, result: object, count: int) -> pa.Table:
        declared, step = self._stage.outputs, self._step.name
        if not isinstance(result, pa.Table):
            raise ContractError(
                f"Step {step!r} returned a {type(result).__name__}, not a Table. Return a pyarrow.Table.",
                code="FK-NOT-A-TABLE",
            )
        if result.schema.names != declared.names or result.schema.types != declared.types:
            raise ContractError(
                f"Step {step!r} returned other columns than its `outputs` declare; make the two agree.\n"
                f"declared: {_flatten(declared)}\nreturned: {_flatten(result.schema)}",
                code="FK-UNDECLARED-COLUMNS",
            )
        if result.num_rows != count:
            raise ContractError(
                f"Step {step!r} was given {count} rows and returned {result.num_rows}. Return one row for each.",
                code="FK-ROW-COUNT",
            )
        return result

    def _put_in_order(
        self, tables: Sequence[pa.Table], places: Sequence[NDArray[np.int64]], halo: NDArray[np.bool_]
    ) -> pa.Table:
        """Return results in the order of the packet's own rows, null where there are none."""
        own, schema = np.flatnonzero(~halo), self._stage.outputs
        if not tables:
            return nulls(schema, len(own))
        order = np.concatenate(places)
        place = np.full(len(halo), -1)
        place[order] = np.arange(len(order))
        source = place[own]
        table = pa.concat_tables([table.cast(schema) for table in tables])
        return table.take(pa.array(source, mask=source < 0))


def nulls(schema: pa.Schema, count: int) -> pa.Table:
    """Return a table of nulls."""
    return pa.table([pa.nulls(count, item.type) for item in schema], schema=schema)


def _flatten(schema: pa.Schema) -> str:
    return ", ".join(f"{item.name} {item.type}" for item in schema)


def batches(stage: Stage, rows: pa.Table, left_out: NDArray[np.bool_], size: Callable[[], int]) -> Iterator[Batch]:
    """Yield the calls of a packet in order, without left-out rows.

    `size` returns the number of rows of a ROW stage's next call; it is asked before each.
    """
    halo = rows[HALO].to_numpy()
    if stage.scope is Scope.ROW:
        usable = np.flatnonzero(~halo & ~left_out)
        while len(usable):
            part, usable = np.split(usable, [size()])
            yield Batch(part, len(part))
        return
    for start, stop in clip_bounds(rows):
        inside = np.arange(start, stop)
        own = inside[~halo[start:stop] & ~left_out[start:stop]]
        ahead = inside[halo[start:stop]][: stage.halo]
        if len(own):
            yield Batch(np.concatenate([own, ahead]), len(own))


def clip_bounds(rows: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield the start and stop of each clip, with the halo behind it."""
    if not rows.num_rows:
        return
    media, clips = rows[KEYS[0]], rows["clip_index"].to_numpy()
    is_other_file = pc.not_equal(media[1:], media[:-1]).to_numpy()
    edges = np.flatnonzero((is_other_file | (np.diff(clips) != 0)) & (clips[1:] >= 0)) + 1
    yield from zip([0, *edges.tolist()], [*edges.tolist(), rows.num_rows], strict=True)


def failed_rows(rows: pa.Table, depends: frozenset[str]) -> NDArray[np.bool_]:
    """Return n bools, true for rows that one of the given steps failed on or skipped."""
    result = np.zeros(rows.num_rows, dtype=bool)
    lists = rows[FAILED].combine_chunks()
    if depends and len(lists.flatten()):
        result[:] = [bool(depends & set(names)) for names in lists.to_pylist()]
    return result


def advance(rows: pa.Table, step: Step, outcome: Outcome) -> pa.Table:
    """Return the packet's rows with only the columns that later steps read."""
    halo = rows[HALO].to_numpy()
    place = np.where(halo, -1, np.cumsum(~halo) - 1)
    for name in step.carried:
        rows = rows.append_column(name, outcome.columns[name].take(pa.array(place, mask=halo)).combine_chunks())
    unchosen = np.zeros(len(halo), bool)
    if outcome.unchosen is not None:
        unchosen[~halo] = outcome.unchosen
    if outcome.failures or unchosen.any():
        failed = {(failure.media_id, failure.frame_index) for failure in outcome.failures}
        marks = []
        for row, is_left_out in zip(rows.select([*KEYS, HALO, FAILED]).to_pylist(), unchosen, strict=True):
            is_failed = (row["media_id"], row["frame_index"]) in failed and not row[HALO]
            marks.append([*row[FAILED], step.name] if is_failed or is_left_out else row[FAILED])
        column = pa.array(marks, pa.list_(pa.string()))
        rows = rows.set_column(rows.column_names.index(FAILED), FAILED, column)
    return rows.drop_columns([name for name in step.drops if name in rows.column_names])
