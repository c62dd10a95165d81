"""The rows that conditions choose: of packets, and of frames before their pixels are made.

Shapes: n rows of a packet, in its order.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.columns import KEYS
from framekiln.contract.output_names import FRAMES
from framekiln.media.frames import IsNeeded
from framekiln.media.packets.spared import Span, Spared
from framekiln.output.object_store import Store
from framekiln.planning.condition import Condition, FrameRule, RowSet
from framekiln.planning.expression import Expression, connect, widen

Mask = NDArray[np.bool_]
Numbers = NDArray[np.float64]  # nan for null
_ROUNDING = 1e-6  # of a frame: times and rates are quotients


@dataclass
class RowChooser:
    """Conditions asked of rows, in one process of one run."""

    store: Store
    _sets: dict[str, pa.Table] = field(default_factory=dict)  # by path

    def choose(self, rows: pa.Table, condition: Condition) -> Mask:
        """Return n bools, true for rows that meet a condition. `rows` has the columns that it reads."""
        mask = self.choose_early(rows, condition)
        return mask if condition.test is None else mask & _ask(rows, condition.test)

    def choose_early(self, rows: pa.Table, condition: Condition) -> Mask:
        """Return n bools, true for rows that meet a condition as far as the columns of decoding tell."""
        mask = np.ones(rows.num_rows, bool)
        if condition.rule is not None:
            index, time, fps = (rows[name].to_numpy().astype(float) for name in ("frame_index", "time_s", "fps"))
            mask &= follow(condition.rule, index, time, _find_before(rows, time), fps, condition.every_nth)
        for each in condition.sets:
            chosen = self._find(each, rows[KEYS[0]])
            keys = zip(*(rows[key].to_pylist() for key in KEYS), strict=True)
            mask &= np.array([index in chosen.get(name, ()) for name, index in keys], bool)
        return mask

    def find_needed(
        self, media: pa.Array, narrowed: Mapping[str, Sequence[Sequence[Condition]]]
    ) -> Mapping[str, Mapping[str, IsNeeded]]:
        """Return which frames of each file may be needed, by pixel column. See `DecodeStep.narrowed`."""
        conditions = [condition for readers in narrowed.values() for each in readers for condition in each]
        sets = {rows.path: self._find(rows, media) for condition in conditions for rows in condition.sets}

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
        self,
        media: Sequence[str],
        narrowed: Mapping[str, Sequence[Sequence[Condition]]],
        known: Mapping[Span, pa.Table],
        failed: Collection[str],
    ) -> Spared:
        """Return what need not be decoded of a unit.

        Args:
            media: its files.
            narrowed: the conditions of each reader of a pixel column; see `DecodeStep`.
            known: its rows by an earlier reading, with columns of `SOURCE`, by packets; empty if they are not known.
            failed: files with errors, which are decoded so that these are said again.
        """
        needed = self.find_needed(pa.array(media, pa.string()), narrowed)
        if not known:
            return Spared(needed=needed)
        readers = [each for column in narrowed.values() for each in column]
        chosen = {span: np.any([self._meet(rows, each) for each in readers], axis=0) for span, rows in known.items()}
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

    def _meet(self, rows: pa.Table, conditions: Sequence[Condition]) -> Mask:
        return np.all([self.choose_early(rows, condition) for condition in conditions], axis=0)

    def _find(self, rows: RowSet, media: pa.Array) -> dict[str, set[int]]:
        """Return the numbers of the frames of some files that are in a set."""
        if rows.path not in self._sets:
            self._sets[rows.path] = self.store.read_table(rows.path, KEYS)
        table, found = self._sets[rows.path], dict[str, set[int]]()
        part = table.filter(pc.is_in(table[KEYS[0]], pc.unique(media).cast(table[KEYS[0]].type)))
        for name, index in zip(*(part[key].to_pylist() for key in KEYS), strict=True):
            found.setdefault(name, set()).add(index)
        return found


def follow(rule: FrameRule, index: Numbers, time: Numbers, before: Numbers, fps: Numbers, every_nth: int) -> Mask:
    """Return whether rows (n) follow a rule: the frames shown at each of a film's moments, for `per_second`.

    `before`: times of the rows before them, in s; nan where these are unknown, so that the frame rate tells.
    """
    place = index // every_nth
    if rule.every is not None:
        return place % rule.every == 0
    if rule.first is not None:
        return place < rule.first
    rate = rule.per_second or 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        before = np.where(np.isnan(before), time - every_nth / np.where(fps > 0, fps, np.nan), before)
    begins = np.floor(time * rate + _ROUNDING) > np.floor(before * rate + _ROUNDING)
    return begins | np.isnan(time) | np.isnan(before)


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


def _find_before(rows: pa.Table, time: Numbers) -> Numbers:
    """Return the time of the row before each (n) in its clip; nan at the first one of a clip."""
    before = np.concatenate([[np.nan], time[:-1]])[: len(time)]
    names, clips = rows[KEYS[0]], rows["clip_index"].to_numpy()
    if len(time) > 1:
        other = pc.not_equal(names[1:], names[:-1]).to_numpy() | (np.diff(clips) != 0)
        before[1:][other] = np.nan
    return before


def _ask(rows: pa.Table, test: Expression) -> Mask:
    connection = connect()
    read = widen(rows.select([name for name in rows.column_names if name in {*KEYS, *test.names}]))
    connection.register(FRAMES, read.append_column("row", pa.array(range(len(read)), pa.int64())))
    question = f'SELECT coalesce(({test.text}), false) AS met FROM {FRAMES} ORDER BY "row"'  # noqa: S608 - checked
    return np.asarray(connection.sql(question).to_arrow_table()["met"].to_numpy(), bool)
