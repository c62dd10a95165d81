"""Real rows for calibration: a few frames from all over the input, with the columns that the measured steps read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.calls import Caller
from pipeline.errors import InputError
from pipeline.isolation import Calls
from pipeline.media.decode import decode
from pipeline.media.listing import list_media
from pipeline.media.pixels import keep_to_one_thread
from pipeline.media.store import Media
from pipeline.media.units import form_units
from pipeline.packet import HALO
from pipeline.plan import Plan
from pipeline.readiness import set_up
from pipeline.recorder import pixels
from pipeline.stage import Scope, Stage
from pipeline.step import DecodeStep, Step
from pipeline.trial import attempt

_OF_A_FILE = 4  # frames of one film at most, so that the rows are not all of one
_LOOKED_AT = 4  # times as many files as rows: some cannot be read


@dataclass
class Sample:
    """Decoded rows, halo included, and how they came about."""

    rows: pa.Table
    decode_rows_per_s: float = 0.0  # one process: files to rows, and the steps that have no model
    failed: dict[str, str] = field(default_factory=dict)  # steps that made nothing of the rows, and why

    def sizes(self) -> list[pa.Table]:
        """Rows of one size each: of the smallest pictures and of the largest ones, which may be the same."""
        rows = self.rows.filter(pc.invert(self.rows[HALO]))
        of = pixels(rows)
        chosen = sorted({int(of.min()), int(of.max())})
        return [rows.filter(pa.array(of == one)) for one in chosen]


def sample(
    source: str, plan: Plan, wanted: Sequence[Step], count: int, on_producer: Callable[[Step], None] = lambda _: None
) -> Sample:
    """Decode about so many rows, and run the steps whose columns some steps read.

    Args:
        source: the input.
        plan: its decoding and its first pass.
        wanted: the steps to be measured.
        count: rows.
        on_producer: told of each step with a model that runs on the rows, since that may take long.

    Raises:
        InputError: there is no input, or no frame in what was looked at.
    """
    keep_to_one_thread()
    needed = {name for step in wanted for name in step.depends}
    steps = [step for step in plan.first if step.name in needed or not has_model(step)]
    for step in steps:
        if not has_model(step):
            set_up(step)
    spread = _spread(list_media(source), _LOOKED_AT * count)
    for _ in _packets(spread[:1], plan.decode, 1):  # libraries are loaded by the first file, which is not timed
        pass
    began = time.perf_counter()
    rows = _decoded(spread, plan.decode, count)
    taken = time.perf_counter() - began
    if rows is None:
        raise InputError(f"None of the {len(spread)} files of {source!r} that were tried has a frame; check --input.")
    found = Sample(rows)
    for step in steps:
        if has_model(step):
            on_producer(step)
        began = time.perf_counter()
        _add(found, step)
        taken += 0.0 if has_model(step) else time.perf_counter() - began
    found.decode_rows_per_s = int(pc.sum(pc.invert(rows[HALO])).as_py()) / taken
    return found


def has_model(step: Step) -> bool:
    """Whether a step is one that calibration measures: it has a model, or runs on a GPU."""
    return step.first_pass and (bool(step.stage.weights) or step.placement.device != "cpu")


def batch_of(stage: Stage, rows: pa.Table, count: int, start: int = 0) -> pa.Table:
    """A call of so many rows: those that there are, again and again, as slices of the same buffers.

    For a CLIP stage they are numbered as consecutive frames of one clip.

    Args:
        stage: what is called.
        rows: of which there is at least one.
        count: rows of the call.
        start: which row is its first, counted on beyond the last.
    """
    first = start % rows.num_rows
    several = pa.concat_tables([rows] * -(-(first + count) // rows.num_rows)).slice(first, count)
    if stage.scope is Scope.CLIP:
        same = {"media_id": rows["media_id"][0].as_py(), "clip_index": 0}
        values: Mapping[str, object] = {name: [value] * count for name, value in same.items()}
        for name, column in {**values, "frame_index": range(count)}.items():
            place = several.column_names.index(name)
            several = several.set_column(place, rows.schema.field(name), pa.array(column, rows.schema.field(name).type))
    return several.select(stage.inputs)


def _spread(media: Sequence[Media], count: int) -> list[Media]:
    """So many files from all over a listing, the same ones each time."""
    places = np.random.default_rng(0).permutation(len(media))[:count]
    return [media[place] for place in places]


def _decoded(media: Sequence[Media], how: DecodeStep, count: int) -> pa.Table | None:
    """Rows of files until there are enough, first some of each and then more; None where there is no frame."""
    each = max(1, min(_OF_A_FILE, -(-count // len(media))))
    tables: list[pa.Table] = []
    have = 0
    for table in _packets(media, how, each if len(media) > 1 else count):
        tables.append(table)
        have += int(pc.sum(pc.invert(table[HALO])).as_py())
        if have >= count:
            break
    return pa.concat_tables(tables).combine_chunks() if tables else None


def _packets(media: Sequence[Media], how: DecodeStep, each: int) -> Iterator[pa.Table]:
    config = replace(how.config, max_frames=min(each, how.config.max_frames or each))
    for unit in form_units(media, slots=len(media)):
        for packet in decode(unit, how.columns, how.halo, config):
            if packet.rows.num_rows:
                yield packet.rows


def _add(found: Sample, step: Step) -> None:
    """A step's columns beside the rows, nulls where it fails; nothing where a column that it reads was not made."""
    if not set(step.stage.inputs) <= set(found.rows.column_names):
        return
    found.rows, said = _with_columns(found.rows, step)
    if said:
        found.failed[step.name] = said


def _with_columns(rows: pa.Table, step: Step) -> tuple[pa.Table, str]:
    """A step with a model is called in a child process, row by row: this process keeps off the device."""
    own = rows.filter(pc.invert(rows[HALO]))
    if has_model(step):
        batches = [batch_of(step.stage, own.slice(i, 1), 1) for i in range(own.num_rows)]
        answers = attempt(Calls.of(step, batches), range(len(batches)))
        good = [one if isinstance(one, pa.Table) else None for one in answers]
        said = next((_words(one) for one, table in zip(answers, good, strict=True) if table is None), "")
        empty = pa.table([pa.nulls(1, item.type) for item in step.stage.outputs], schema=step.stage.outputs)
        columns = pa.concat_tables([empty if one is None else one.cast(step.stage.outputs) for one in good])
    else:
        outcome = Caller(step).run(rows, np.zeros(rows.num_rows, bool))
        columns, said = outcome.columns, next((one.message for one in outcome.failures), "")
    halo = rows[HALO].to_numpy()
    place = pa.array(np.where(halo, -1, np.cumsum(~halo) - 1), mask=halo)
    for name in step.stage.outputs.names:
        rows = rows.append_column(name, columns[name].take(place).combine_chunks())
    return rows, said


def _words(answer: object) -> str:
    return str(getattr(answer, "message", "") or getattr(answer, "how", "") or getattr(answer, "said", ""))
