"""Sample rows for calibration: a few frames from all over the input, with the columns of measured steps."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.errors import InputError
from framekiln.contract.packet import HALO
from framekiln.contract.stage import Scope, Stage
from framekiln.media.files import MediaFile
from framekiln.media.packets.decode import decode, use_one_thread
from framekiln.media.units import form_units
from framekiln.planning.plan import Plan
from framekiln.planning.step import DecodeStep, Step
from framekiln.profiling.step_work import pixels
from framekiln.runtime.recovery.child_tasks import StageCalls, call_in_children
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller

_FILE_FRAMES = 4  # most frames of one video, so that the rows come from several
_FILES_PER_ROW = 4  # files tried for each row, since some are unreadable


@dataclass
class SampleRows:
    """Decoded rows with halo, their decoding time, and steps that failed on them."""

    rows: pa.Table
    seconds: float  # time of decoding and steps without a model, in one process
    failed: dict[str, str] = field(default_factory=dict)  # steps that failed, with the reason

    @property
    def own(self) -> pa.Table:
        """The rows without halo."""
        return self.rows.filter(pc.invert(self.rows[HALO]))

    @property
    def decode_rows_per_s(self) -> float:
        """Rate of decoding in one process, with the steps without a model."""
        return float(self.own.num_rows / self.seconds)

    def sizes(self, scope: Scope = Scope.ROW) -> list[pa.Table]:
        """Return tables of rows with one image size each: the smallest and the largest; one table if they are equal.

        For a CLIP stage they are rows of videos and animations if possible: photos have no motion or sound.
        """
        films = self.own.filter(pc.not_equal(self.own["media_type"], "photo"))
        own = films if scope is Scope.CLIP and films.num_rows else self.own
        sizes = pixels(own)
        return [own.filter(pa.array(sizes == size)) for size in sorted({int(sizes.min()), int(sizes.max())})]

    def add(self, step: Step) -> None:
        """Add a step's columns, null where it fails; nothing if a producer of its inputs lacked inputs too."""
        if not set(step.stage.inputs) <= set(self.rows.column_names):
            return
        began = time.perf_counter()
        if has_model(step):  # child processes call it row by row, and alone use the device
            own, schema = self.own, step.stage.outputs
            batches = [batch_of(step.stage, own.slice(i, 1), 1) for i in range(own.num_rows)]
            answers = call_in_children(StageCalls.of(step, batches), len(batches))
            failed = [one for one in answers if not isinstance(one, pa.Table)]
            told = (getattr(one, name, "") for one in failed for name in ("message", "kind", "how", "last_lines"))
            error = next(filter(None, told), "")
            empty = pa.table([pa.nulls(1, item.type) for item in schema], schema=schema)
            rows = (one.slice(0, 1).cast(schema) if isinstance(one, pa.Table) else empty for one in answers)
            columns = pa.concat_tables(rows)
        else:
            outcome = PacketCaller(step).run(self.rows, np.zeros(self.rows.num_rows, bool))
            columns, error = outcome.columns, next((failure.message for failure in outcome.failures), "")
        halo = self.rows[HALO].to_numpy()
        place = pa.array(np.where(halo, -1, np.cumsum(~halo) - 1), mask=halo)
        for name in step.stage.outputs.names:
            self.rows = self.rows.append_column(name, columns[name].take(place).combine_chunks())
        if error:
            self.failed[step.name] = error
        self.seconds += 0.0 if has_model(step) else time.perf_counter() - began


def sample_rows(
    media: Sequence[MediaFile],
    plan: Plan,
    wanted: Sequence[Step],
    count: int,
    say: Callable[[str], None] = lambda _: None,
) -> SampleRows:
    """Decode about `count` rows, and run the steps that produce columns for the measured ones, `wanted`.

    `say` gets a sentence before a step with a model runs on the rows, since that may take long. Raises InputError:
    no tried file has a frame.
    """
    use_one_thread()
    needed = {name for step in wanted for name in step.depends}
    steps = [step for step in plan.first if step.name in needed or not has_model(step)]
    for step in steps:
        if not has_model(step):
            set_up(step)
    places = np.random.default_rng(0).permutation(len(media))[: _FILES_PER_ROW * count]  # from all over the listing
    sample = _decode([media[place] for place in places], plan.decode, count)
    for step in steps:
        if has_model(step):
            say(f"{step.name} runs on the rows, since other steps read its columns.")
        sample.add(step)
    return sample


def write_rows(rows: pa.Table, path: Path) -> Path:
    """Write rows to a file that a child process maps into its memory."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return path


def open_rows(path: Path) -> pa.Table:
    """Return the rows of a file, in mapped memory."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def has_model(step: Step) -> bool:
    """Return True for a step that calibration measures: it has a model, or runs on a GPU."""
    return step.first_pass and (bool(step.stage.weights) or step.placement.device != "cpu")


def batch_of(stage: Stage, rows: pa.Table, count: int, start: int = 0) -> pa.Table:
    """Return a batch of `count` rows and a halo for a call: repeated rows, as slices of the same buffers.

    It begins with row `start`; numbers continue after the last row. For a CLIP stage the rows are numbered as frames of
    one clip, and its halo follows them.
    """
    first, count = start % rows.num_rows, count + stage.halo
    batch = pa.concat_tables([rows] * -(-(first + count) // rows.num_rows)).slice(first, count)
    if stage.scope is Scope.CLIP:
        clips = [0] * (count - stage.halo) + [-1] * stage.halo
        names = [rows["media_id"][0].as_py()] * count
        for name, column in {"media_id": names, "clip_index": clips, "frame_index": range(count)}.items():
            place = batch.column_names.index(name)
            batch = batch.set_column(place, rows.schema.field(name), pa.array(column, rows.schema.field(name).type))
    return batch.select(stage.inputs)


def _decode(media: Sequence[MediaFile], how: DecodeStep, count: int) -> SampleRows:
    for _ in _read_packets(media[:1], how, 1):  # the first file loads libraries and is not timed
        pass
    began = time.perf_counter()
    each = max(1, min(_FILE_FRAMES, -(-count // len(media))))
    tables: list[pa.Table] = []
    rows = 0
    for table in _read_packets(media, how, each if len(media) > 1 else count):
        tables.append(table)
        rows += int(pc.sum(pc.invert(table[HALO])).as_py())
        if rows >= count:
            break
    if not tables:
        raise InputError(
            f"None of the {len(media)} files that were tried has a frame, {media[0].media_id!r} among them; check "
            "--input.",
            code="FK-NO-FRAMES",
        )
    return SampleRows(pa.concat_tables(tables).combine_chunks(), time.perf_counter() - began)


def _read_packets(media: Sequence[MediaFile], how: DecodeStep, each: int) -> Iterator[pa.Table]:
    config = replace(how.config, max_frames=min(each, how.config.max_frames or each))
    for unit in form_units(media, slots=len(media)):
        for packet in decode(unit, how.columns, how.halo, config):
            if packet.rows.num_rows:
                yield packet.rows
