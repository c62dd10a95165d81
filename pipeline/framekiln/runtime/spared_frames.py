"""Frames that no step needs, known by conditions before they are decoded, or before their pixels are made."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import KEYS
from framekiln.media.frames import IsNeeded
from framekiln.media.packets.spared import Span, Spared
from framekiln.planning.condition import Condition, FrameRule
from framekiln.runtime.chosen_rows import Mask, RowChooser, follow


def find_needed(
    chooser: RowChooser, media: pa.Array, narrowed: Mapping[str, Sequence[Sequence[Condition]]]
) -> Mapping[str, Mapping[str, IsNeeded]]:
    """Return which frames of each file may be needed, by pixel column. See `DecodeStep.narrowed`."""
    conditions = [condition for readers in narrowed.values() for each in readers for condition in each]
    sets = {rows.path: chooser.find(rows, media) for condition in conditions for rows in condition.sets}

    def make(name: str, readers: Sequence[Sequence[Condition]]) -> IsNeeded:
        def is_needed(index: int, time: float | None, before: float | None, fps: float | None) -> bool:
            frame = _Frame(index, time, before, fps)
            return any(
                all(
                    (condition.rule is None or frame.may_follow(condition.rule, condition.every_nth))
                    and all(index in sets[rows.path].get(name, ()) for rows in condition.sets)
                    for condition in each
                )
                for each in readers
            )

        return is_needed

    names = media.to_pylist()
    return {name: {column: make(name, readers) for column, readers in narrowed.items()} for name in names}


def spare(
    chooser: RowChooser,
    media: Sequence[str],
    narrowed: Mapping[str, Sequence[Sequence[Condition]]],
    known: Mapping[Span, pa.Table],
    failed: Collection[str],
) -> Spared:
    """Return what need not be decoded of a unit.

    Args:
        chooser: of this process.
        media: its files.
        narrowed: the conditions of each reader of a pixel column; see `DecodeStep`.
        known: its rows by an earlier reading, with columns of `SOURCE`, by packets; empty if they are not known.
        failed: files with errors, which are decoded so that these are said again.
    """
    needed = find_needed(chooser, pa.array(media, pa.string()), narrowed)
    if not known:
        return Spared(needed=needed)
    readers = [each for column in narrowed.values() for each in column]
    chosen = {span: np.any([_meet(chooser, rows, each) for each in readers], axis=0) for span, rows in known.items()}
    names = {span: rows[KEYS[0]] for span, rows in known.items()}
    decoded = {name for span, mask in chosen.items() for name in names[span].filter(pa.array(mask)).to_pylist()}
    decoded |= set(failed)
    whole = pa.concat_tables(known.values())
    files = {
        name: whole.filter(pc.equal(whole[KEYS[0]], name))
        for name in pc.unique(whole[KEYS[0]]).to_pylist()
        if name not in decoded
    }
    spans = {
        span: rows
        for span, rows in known.items()
        if not chosen[span].any() and set(failed).isdisjoint(names[span].to_pylist())
    }
    return Spared(files=files, spans=spans, needed=needed)


def _meet(chooser: RowChooser, rows: pa.Table, conditions: Sequence[Condition]) -> Mask:
    return np.all([chooser.choose_early(rows, condition) for condition in conditions], axis=0)


@dataclass(frozen=True)
class _Frame:
    index: int
    time: float | None
    before: float | None
    fps: float | None

    def may_follow(self, rule: FrameRule, every_nth: int) -> bool:
        """Return whether the row of this frame follows a rule, wherever its clip begins."""
        fps = np.nan if self.fps is None else np.float32(self.fps)  # as rows have it
        index, time, fps_, before = (
            np.array([np.nan if value is None else value], float) for value in (self.index, self.time, fps, self.before)
        )
        unknown = np.array([np.nan])
        return any(bool(follow(rule, index, time, each, fps_, every_nth)[0]) for each in (before, unknown))
