"""Frames that no step needs, known by conditions before they are decoded, or before their pixels are made."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import KEYS
from framekiln.media.frames import IsNeeded
from framekiln.media.packets.spared import Spared
from framekiln.output.ledger import Part
from framekiln.planning.condition import Condition, FrameRule
from framekiln.runtime.chosen_rows import Mask, RowChooser, follow


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
_MANY = 64  # parts of a unit: a long film, which is looked at segment by segment, since each of its tasks looks


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
        narrowed: the conditions of each reader of a pixel column; see `DecodeStep`.
        known: decoding's parts of it by an earlier reading; empty if there are none.
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


def _choose(chooser: RowChooser, rows: pa.Table, readers: Sequence[Sequence[Condition]]) -> Mask:
    """Return which rows (n) some reader needs."""
    return np.any(
        [np.all([chooser.choose_early(rows, condition) for condition in each], axis=0) for each in readers], axis=0
    )


def _may_follow(
    rule: FrameRule, every_nth: int, index: int, time: float | None, before: float | None, fps: float | None
) -> bool:
    """Return whether the row of a frame follows a rule, wherever its clip begins."""
    rate = np.nan if fps is None else np.float32(fps)  # as rows have it
    place, moment, rates, earlier = (
        np.array([np.nan if value is None else value], float) for value in (index, time, rate, before)
    )
    unknown = np.array([np.nan])
    return any(bool(follow(rule, place, moment, each, rates, every_nth)[0]) for each in (earlier, unknown))
