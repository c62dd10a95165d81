"""Frames that are not decoded: no step needs them, or every value made from them is stored.

Runs with other conditions left such values. If a narrower condition chooses only rows with known values, parts are
written from parts, unit by unit.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import KEYS
from framekiln.contract.packet import HALO, Packet
from framekiln.media.frames import IsNeeded
from framekiln.media.packets.spared import Spared
from framekiln.output.ledger import Part
from framekiln.planning.condition import Condition, FrameRule
from framekiln.planning.step import DecodeStep, Step
from framekiln.runtime.chosen_rows import RowChooser, RowMask, follow
from framekiln.runtime.parts import Parts, part_of
from framekiln.runtime.step_results import FAILED, Outcome, advance, failed_rows, nulls


def find_needed(
    chooser: RowChooser, media: pa.Array, narrowed: Mapping[str, Sequence[Sequence[Condition]]]
) -> Mapping[str, Mapping[str, IsNeeded]]:
    """Return which frames of each file may be needed, by pixel column. See `DecodeStep.narrowed`."""
    conditions = [condition for readers in narrowed.values() for each in readers for condition in each]
    sets = {rows.path: chooser.find(rows, media) for condition in conditions for rows in condition.sets}

    def make(name: str, readers: Sequence[Sequence[Condition]]) -> IsNeeded:
        def is_needed(index: int, *moment: float | None) -> bool:
            return any(
                all(
                    (condition.rule is None or _may_follow(condition.rule, condition.every_nth, index, *moment))
                    and all(index in sets[rows.path].get(name, ()) for rows in condition.sets)
                    for condition in each
                )
                for each in readers
            )

        return is_needed

    names = media.to_pylist()
    return {name: {column: make(name, readers) for column, readers in narrowed.items()} for name in names}


ReadPart = Callable[[Part], tuple[pa.Table, set[str]]]
"""Reads the rows of decoding's part of a packet, and the files with errors in it."""
_MANY = 64  # most parts of a unit; with more, a long video is checked segment by segment by its tasks


def spare(
    chooser: RowChooser,
    media: Sequence[str],
    narrowed: Mapping[str, Sequence[Sequence[Condition]]],
    known: Sequence[Part],
    read: ReadPart,
) -> Spared:
    """Return the part of a unit that need not be decoded. Files with errors are decoded again, to report them again.

    Args:
        chooser: of this process.
        media: its files.
        narrowed: conditions of each reader of a pixel column; see `DecodeStep`.
        known: decoding's parts of the unit from an earlier run; empty: none.
        read: reads one of these.
    """
    needed = find_needed(chooser, pa.array(media, pa.string()), narrowed)
    readers = [each for column in narrowed.values() for each in column]

    def read_unneeded(part: Part) -> pa.Table | None:
        rows, failed = read(part)
        return None if failed or _choose(chooser, rows, readers).any() else rows

    spans = {(part.start, part.stop): partial(read_unneeded, part) for part in known}
    if not 0 < len(known) <= _MANY:
        return Spared(spans=spans, needed=needed)
    last = Part(known[-1].unit, known[-1].stop, known[-1].stop)
    tables, errors = zip(*map(read, (*known, last)), strict=True)
    rows = pa.concat_tables(tables)
    decoded = {name for names in errors for name in names}
    decoded.update(rows.filter(pa.array(_choose(chooser, rows, readers)))[KEYS[0]].to_pylist())
    names = [name for name in pc.unique(rows[KEYS[0]]).to_pylist() if name not in decoded]
    files = {name: rows.filter(pc.equal(rows[KEYS[0]], name)) for name in names}
    return Spared(files=files, spans=spans, needed=needed)


def _choose(chooser: RowChooser, rows: pa.Table, readers: Sequence[Sequence[Condition]]) -> RowMask:
    """Return which rows (n) some reader needs."""
    return np.any(
        [np.all([chooser.choose_early(rows, condition) for condition in each], axis=0) for each in readers], axis=0
    )


def _may_follow(
    rule: FrameRule, every_nth: int, index: int, time: float | None, before: float | None, fps: float | None
) -> bool:
    """Return whether a frame's row may follow a rule, wherever its clip begins."""
    rate = np.nan if fps is None else np.float32(fps)  # float32, as rows store it
    place, moment, rates, earlier = (
        np.array([np.nan if value is None else value], float) for value in (index, time, rate, before)
    )
    unknown = np.array([np.nan])
    return any(bool(follow(rule, place, moment, each, rates, every_nth)[0]) for each in (earlier, unknown))


def open_part(parts: Parts, decode: DecodeStep, part: Part) -> Packet:
    """Return the packet of a part of decoding, without pixels."""
    rows, _ = parts.read_decoded(decode, part)
    rows = rows.append_column(HALO, pa.array(np.zeros(len(rows), bool)))
    rows = rows.append_column(FAILED, pa.array([[]] * len(rows), pa.list_(pa.string())))
    return Packet(unit=part.unit, start=part.start, stop=part.stop, rows=rows)


def adopt(parts: Parts, chooser: RowChooser, decode: DecodeStep, part: Part, whole: Collection[str]) -> bool:
    """Write the parts of all steps for a part of decoding; return False if a value must be computed.

    The result does not depend on what this run has finished. `whole`: folders of the steps that had all rows of the
    unit before, in whatever packets.
    """
    packet = open_part(parts, decode, part)
    for step in decode.adopters:
        is_there = step.recalled or step.folder in whole
        if not is_there and not _write_known(parts, chooser, step, packet):
            return False
        if (outcome := parts.read(replace(step, recalled=is_there), part)) is None:
            return False
        packet = replace(packet, rows=advance(packet.rows, step, outcome))
    return True


def _write_known(parts: Parts, chooser: RowChooser, step: Step, packet: Packet) -> bool:
    """Write a step's part from known values, unless it exists; return False if a row must be computed."""
    left_out = find_left_out(chooser, step, packet.rows)
    known = parts.find_known(step, packet, ~left_out) if step.others else None
    is_known = left_out if known is None else left_out | known.taken
    if not is_known.all() or parts.retried_rows(step, packet) is not None:
        return False
    if parts.done(step, part_of(packet)):
        return True
    outcome = Outcome(nulls(step.stage.outputs, len(left_out)), [], left_out if step.is_narrowed else None)
    parts.write(step, packet, outcome, known)
    return True


def find_left_out(chooser: RowChooser, step: Step, rows: pa.Table) -> RowMask:
    """Return n bools, true for rows that a step skips."""
    left_out = failed_rows(rows, step.needs)
    if step.condition.is_given:
        left_out |= ~chooser.choose(rows, step.condition)
    return left_out
