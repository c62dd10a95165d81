"""A first-pass step's results for a packet: computed by its stage, or read from its part in the output.

A part is the columns that a step added to a packet, its failures, and encoded files beside them. To compute one, the
stage is called on all rows; what it returns is checked, and put in the packet's order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.columns import KEYS
from framekiln.contract.errors import ContractError, DamagedError
from framekiln.contract.output_names import COLUMNS, IMAGES
from framekiln.contract.packet import HALO, Packet
from framekiln.contract.row_errors import SCHEMA, Failure, to_table
from framekiln.contract.stage import Scope, Stage
from framekiln.media.media_ids import as_folder
from framekiln.output.damage import MARKS
from framekiln.output.ledger import Part
from framekiln.output.object_store import Store
from framekiln.planning.step import Step, is_file_column
from framekiln.profiling.step_work import StepWork, pixels
from framekiln.profiling.tools.torch_profiler import ProfiledStage
from framekiln.runtime.recovery.attempt_log import Attempt
from framekiln.runtime.recovery.batch_limits import BatchLimits, bucket_of
from framekiln.runtime.recovery.captured_error import CapturedError
from framekiln.runtime.stage_caller import Batch, CallData, StageCaller


@dataclass
class Outcome:
    """A step's results for a packet."""

    columns: pa.Table  # its outputs, one row for each row of the packet that is not halo
    failures: list[Failure] = field(default_factory=list)


class PacketCaller:
    """One first-pass step, called on packets."""

    def __init__(self, step: Step, limits: BatchLimits | None = None, profiler: ProfiledStage | None = None) -> None:
        self._step, self._stage, self._limits = step, step.stage, limits or BatchLimits()
        self._caller = StageCaller(step, self._limits, profiler)

    def run(
        self, rows: pa.Table, left_out: NDArray[np.bool_], attempt: Attempt | None = None, work: StepWork | None = None
    ) -> Outcome:
        """Call the stage on all rows except the ones that an earlier step failed on; their outputs are null.

        Raises:
            ContractError: the stage returned other rows or columns than it declared.
        """
        bucket = bucket_of(int(pixels(rows).max(initial=0)))
        data = CallData(rows=rows, bucket=bucket, attempt=attempt or Attempt(), work=work or StepWork())
        most = self._step.placement.batch
        tables: list[pa.Table] = []
        places: list[NDArray[np.int64]] = []
        failures: list[Failure] = []
        for whole in batches(self._stage, rows, left_out, lambda: self._limits.allowed(data.bucket, most)):
            for batch, result in self._caller.settle(data, whole):
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
    """Yield the calls of a packet in its order, without rows that are left out.

    `size` returns the rows of a ROW stage's next call, and is called before each.
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
    """Yield the start and stop of each clip with the halo that follows it."""
    if not rows.num_rows:
        return
    media, clips = rows[KEYS[0]], rows["clip_index"].to_numpy()
    is_other_file = pc.not_equal(media[1:], media[:-1]).to_numpy()
    edges = np.flatnonzero(is_other_file | (np.diff(clips) != 0)) + 1
    yield from zip([0, *edges.tolist()], [*edges.tolist(), rows.num_rows], strict=True)


class Parts:
    """The parts of an output, for a worker."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def done(self, step: Step, part: Part) -> bool:
        """Return whether a part exists, with no row to be retried."""
        return self._has_file(step, part.name) and not self._has_file(step, part.retry_name)

    def retried_rows(self, step: Step, packet: Packet) -> NDArray[np.bool_] | None:
        """Return n bools, true for a packet's rows that are to be retried; None if the whole part is missing.

        A clip is computed as a whole: if one of its rows is retried, all are.
        """
        part = part_of(packet)
        if not (self._has_file(step, part.retry_name) and self._has_file(step, part.name)):
            return None
        marks = self._store.read_table(_make_path(step, part.retry_name), expected=MARKS)
        wanted = set(zip(*(marks[key].to_pylist() for key in KEYS), strict=True))
        keys = zip(*(packet.rows[key].to_pylist() for key in KEYS), strict=True)
        chosen = np.array([key in wanted for key in keys], dtype=bool) & ~packet.rows[HALO].to_numpy()
        if step.stage.scope is Scope.CLIP:
            for start, stop in clip_bounds(packet.rows):
                chosen[start:stop] |= chosen[start:stop].any()
        return chosen

    def read(self, step: Step, part: Part) -> Outcome:
        """Read the columns of a part that later steps read, with the content of files, and its failures."""
        table = self._store.read_table(_make_path(step, part.name), step.carried, expected=step.table_schema)
        for position, name in enumerate(step.carried):
            if is_file_column(item := step.stage.outputs.field(name)):
                data = [None if path is None else self._read_content(path) for path in table[name].to_pylist()]
                table = table.set_column(position, item, pa.array(data, item.type))
        return Outcome(table, self._read_failures(step, part))

    def _read_content(self, path: str) -> bytes:
        try:
            return self._store.read(path)
        except (FileNotFoundError, ValueError) as error:  # the latter: a path outside of the output
            message = f"{self._store.url(path)!r} has gone; run the same command again to replace it."
            raise DamagedError(message, code="FK-OUTPUT-DAMAGED") from error

    def write(self, step: Step, packet: Packet, outcome: Outcome) -> None:
        """Write a part. The columns are written last, since their existence marks the part as complete."""
        columns = step.mark(self._write_files(step, packet, outcome.columns))
        self.put(step.folder, part_of(packet), columns, outcome.failures)

    def update(self, step: Step, packet: Packet, outcome: Outcome, retried: NDArray[np.bool_]) -> None:
        """Write a part with its retried rows replaced; other rows and their failures stay."""
        part, halo = part_of(packet), packet.rows[HALO].to_numpy()
        before = self._store.read_table(_make_path(step, part.name), expected=step.table_schema)
        both = pa.concat_tables([before.cast(step.table_schema), self._write_files(step, packet, outcome.columns)])
        own = retried[~halo]
        table = both.take(pa.array(np.arange(len(own)) + len(own) * own))
        keys = zip(*(packet.rows[key].to_pylist() for key in KEYS), strict=True)
        replaced = {key for key, is_retried in zip(keys, retried & ~halo, strict=True) if is_retried}
        kept = [old for old in self._read_failures(step, part) if (old.media_id, old.frame_index) not in replaced]
        if not (failures := [*kept, *outcome.failures]):
            self._store.remove(_make_path(step, part.errors_name))
        self.put(step.folder, part, step.mark(table), failures)
        self._store.remove(_make_path(step, part.retry_name))

    def put(self, folder: str, part: Part, columns: pa.Table, failures: Sequence[Failure]) -> None:
        """Write a part's columns and failures."""
        if failures:
            self._store.write_table(f"{COLUMNS}/{folder}/{part.errors_name}", to_table(failures))
        self._store.write_table(f"{COLUMNS}/{folder}/{part.name}", columns)

    def _has_file(self, step: Step, name: str) -> bool:
        return self._store.exists(_make_path(step, name))

    def _read_failures(self, step: Step, part: Part) -> list[Failure]:
        path = _make_path(step, part.errors_name)
        if not self._store.exists(path):
            return []
        return [Failure(**row) for row in self._store.read_table(path, SCHEMA.names, expected=SCHEMA).to_pylist()]

    def _write_files(self, step: Step, packet: Packet, columns: pa.Table) -> pa.Table:
        """Write encoded files beside the tables, and return the columns with their paths in place of their content."""
        if not any(is_file_column(item) for item in step.stage.outputs):
            return columns
        own = packet.rows.select(KEYS).filter(pc.invert(packet.rows[HALO])).to_pylist()
        arrays = []
        for item in step.stage.outputs:
            if not is_file_column(item):
                arrays.append(columns[item.name])
                continue
            folder = f"{IMAGES}/{item.name}-{step.fingerprint}"
            values = zip(own, columns[item.name].to_pylist(), strict=True)
            arrays.append(pa.array([self._put_file(folder, key, data) for key, data in values], pa.string()))
        return pa.table(arrays, schema=step.table_schema)

    def _put_file(self, folder: str, key: dict[str, Any], data: bytes | None) -> str | None:
        if data is None:
            return None
        signatures = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"RIFF": ".webp"}
        suffix = next((end for start, end in signatures.items() if data.startswith(start)), ".bin")
        path = f"{folder}/{as_folder(key['media_id'])}/{key['frame_index']:08d}{suffix}"
        self._store.write(path, data)
        return path


def part_of(packet: Packet) -> Part:
    """Return the name of a step's part for a packet."""
    return Part(packet.unit, packet.start, packet.stop)


def _make_path(step: Step, name: str) -> str:
    return f"{COLUMNS}/{step.folder}/{name}"
