"""The rows that conditions choose.

Shapes: n rows of a packet, in its order.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.columns import KEYS
from framekiln.contract.output_names import FRAMES
from framekiln.output.object_store import Store
from framekiln.planning.condition import Condition, FrameRule, RowSet
from framekiln.planning.expression import Expression, connect, explain, widen

RowMask = NDArray[np.bool_]  # n, true for chosen rows
Numbers = NDArray[np.float64]  # nan for null
_ROUNDING = 1e-6  # share of a frame: times and rates are rounded quotients


@dataclass
class RowChooser:
    """Conditions applied to rows, in one process of a run."""

    store: Store
    _sets: dict[str, pa.Table] = field(default_factory=dict)  # by path

    def choose(self, rows: pa.Table, condition: Condition) -> RowMask:
        """Return n bools, true for rows that meet a condition. `rows` has all columns that it reads."""
        mask = self.choose_early(rows, condition)
        return mask if condition.test is None else mask & _ask(rows, condition.test)

    def choose_early(self, rows: pa.Table, condition: Condition) -> RowMask:
        """Return n bools, true for rows that may meet a condition by the columns of decoding alone."""
        mask = np.ones(rows.num_rows, bool)
        if condition.rule is not None:
            index, time, fps = (rows[name].to_numpy().astype(float) for name in ("frame_index", "time_s", "fps"))
            mask &= follow(condition.rule, index, time, _find_before(rows, time), fps, condition.every_nth)
        for each in condition.sets:
            chosen = self.find(each, rows[KEYS[0]])
            keys = zip(*(rows[key].to_pylist() for key in KEYS), strict=True)
            mask &= np.array([index in chosen.get(name, ()) for name, index in keys], bool)
        return mask

    def find(self, rows: RowSet, media: pa.Array) -> dict[str, set[int]]:
        """Return the frame numbers of some files that are in a set."""
        if rows.path not in self._sets:
            self._sets[rows.path] = self.store.read_table(rows.path, KEYS) if rows.keys is None else rows.keys
        table, found = self._sets[rows.path], dict[str, set[int]]()
        part = table.filter(pc.is_in(table[KEYS[0]], pc.unique(media).cast(table[KEYS[0]].type)))
        for name, index in zip(*(part[key].to_pylist() for key in KEYS), strict=True):
            found.setdefault(name, set()).add(index)
        return found


def follow(rule: FrameRule, index: Numbers, time: Numbers, before: Numbers, fps: Numbers, every_nth: int) -> RowMask:
    """Return which rows (n) follow a rule. For `per_second` these are the first ones at or after each moment.

    `before`: times of the preceding rows in s; nan: unknown, so that the frame rate decides.
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


def _find_before(rows: pa.Table, time: Numbers) -> Numbers:
    """Return the time of the row before each row (n) in its clip; nan at the start of a clip."""
    before = np.concatenate([[np.nan], time[:-1]])[: len(time)]
    names, clips = rows[KEYS[0]], rows["clip_index"].to_numpy()
    if len(time) > 1:
        other = pc.not_equal(names[1:], names[:-1]).to_numpy() | (np.diff(clips) != 0)
        before[1:][other] = np.nan
    return before


def _ask(rows: pa.Table, test: Expression) -> RowMask:
    import duckdb  # loaded by `connect` already

    connection = connect()
    read = widen(rows.select([name for name in rows.column_names if name in {*KEYS, *test.names}]))
    connection.register(FRAMES, read.append_column("row", pa.array(range(len(read)), pa.int64())))
    question = f'SELECT coalesce(({test.text}\n), false) AS met FROM {FRAMES} ORDER BY "row"'  # noqa: S608 - checked
    try:
        return np.asarray(connection.sql(question).to_arrow_table()["met"].to_numpy(), bool)
    except duckdb.Error as error:  # a value that cannot be cast, as in cast(media_id as int)
        raise explain(error, f"the condition {test.text!r}", "a packet", read.column_names) from error
