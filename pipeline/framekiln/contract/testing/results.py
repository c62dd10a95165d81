"""Checks of what the calls of a stage return; they run after it is set up.

Threads rarely disturb each other by chance. So two threads go through the code of the stage's top-level package line by
line, in step. What one thread keeps on an object there, the other one meets at its next line.
"""

import math
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType
from typing import Any

import pyarrow as pa

from framekiln.contract.drawing import Drawing
from framekiln.contract.phases import PHASES
from framekiln.contract.stage import Scope, Stage
from framekiln.contract.testing.sample import Check, StageSample, constructed, nearly_equal, require


def check_schema(stage: Stage, sample: StageSample) -> None:
    """Check that no row, one row and many rows give exactly the declared outputs, one row each."""
    if fixed := [item.name for item in stage.outputs if not item.nullable]:
        require(False, f"column {fixed[0]!r} has nullable=False, but is null in rows that fail or are left out")
    for count in (0, 1, sample.rows.num_rows):
        result = stage(sample.rows.slice(0, count))
        require(isinstance(result, pa.Table), f"a call returned {type(result).__name__}, not a pyarrow.Table")
        _check_schema(result.schema, stage.outputs, "outputs")
        rows = min(count, sample.rows.num_rows)
        require(result.num_rows == rows, f"{result.num_rows} rows were returned for {rows}")


def check_repeatability(stage: Stage, sample: StageSample) -> None:
    """Check that the same rows give the same result again, bit for bit."""
    require(stage(sample.rows).equals(stage(sample.rows)), "two calls with the same rows gave different results")


def check_inputs_unchanged(stage: Stage, sample: StageSample) -> None:
    """Check that a call leaves its rows unchanged."""
    before = sample.rows.take(pa.array(range(sample.rows.num_rows), pa.int64()))  # a copy in buffers of its own
    stage(sample.rows)
    require(sample.rows.equals(before), "a call wrote into its input columns; copy before writing")


def check_batch_independence(stage: Stage, sample: StageSample) -> None:
    """Check that a ROW stage computes each row alone: neither other rows nor their order change its result."""
    if stage.scope is not Scope.ROW:
        return
    whole = stage(sample.rows).to_pylist()
    for size in (1, 3):
        starts = range(0, sample.rows.num_rows, size)
        parts = [row for start in starts for row in stage(sample.rows.slice(start, size)).to_pylist()]
        require(nearly_equal(parts, whole), f"batches of {size} gave other results than one batch")
    backwards = list(range(sample.rows.num_rows))[::-1]
    reversed_rows = stage(sample.rows.take(pa.array(backwards, pa.int64()))).to_pylist()
    require(nearly_equal(reversed_rows[::-1], whole), "rows in another order gave other results")


def check_cut_independence(stage: Stage, sample: StageSample) -> None:
    """Check that a CLIP stage gives the same results for a clip cut in two, unless it states `cut_dependence`."""
    if stage.scope is not Scope.CLIP or stage.cut_dependence:
        return
    whole = stage(sample.rows).to_pylist()
    cut = sample.rows.num_rows // 2
    first = stage(sample.rows.slice(0, cut + stage.halo)).to_pylist()[:cut]
    second = stage(sample.rows.slice(cut)).to_pylist()
    require(
        nearly_equal(first + second, whole),
        "a clip cut in two gave other results than a whole one: look ahead by `halo` only, or state `cut_dependence`",
    )


def check_phases(stage: Stage, sample: StageSample) -> None:
    """Check that the names of phases are in `PHASES`."""
    stage.clock.take()
    stage(sample.rows, *_list_other_arguments(stage, sample))
    unknown = sorted(set(stage.clock.take()) - set(PHASES))
    require(not unknown, f"unknown phases {unknown}; the names are {', '.join(PHASES)}")


def check_drawing(stage: Stage, sample: StageSample) -> None:
    """Check that a drawing is None, or a Drawing with finite coordinates."""
    for row in stage(sample.rows).to_pylist():
        drawing = stage.draw(row)
        if drawing is None:
            continue
        require(isinstance(drawing, Drawing), f"draw returned {type(drawing).__name__}, not a Drawing")
        points = [point for area in drawing.areas for ring in area.rings for point in ring]
        points += [(label.x, label.y) for label in drawing.labels]
        values = [value for group in (*drawing.lines, *drawing.points, *points) for value in group]
        require(all(map(math.isfinite, values)), "a drawing has a coordinate that is not a finite number")


def check_agreement(stage: Stage, sample: StageSample) -> None:
    """Check that results agree with themselves: finite values, and a `drift` of 0."""
    fresh = constructed(stage)
    result = stage(sample.rows, *_list_other_arguments(stage, sample))
    results = {"": result} if stage.scope.first_pass else result
    for name, table in results.items():
        agreement = fresh.agreement(table, table, name)
        if agreement is not None:
            require("drift" in agreement, "agreement lacks `drift`")
            require(abs(agreement["drift"]) < 1e-6, "results drift from themselves")
            require(all(map(math.isfinite, agreement.values())), "agreement has a value that is not a finite number")


def check_tables(stage: Stage, sample: StageSample) -> None:
    """Check that a second-pass stage returns exactly its declared tables, with unique keys."""
    result = stage(sample.rows, *_list_other_arguments(stage, sample))
    require(isinstance(result, dict), f"a call returned {type(result).__name__}, not a dict of tables")
    require(result.keys() == stage.tables.keys(), f"a call returned {sorted(result)}, not {sorted(stage.tables)}")
    for name, declared in stage.tables.items():
        _check_schema(result[name].schema, declared.schema, f"table {name!r}")
        keys = [tuple(row.values()) for row in result[name].select(list(declared.keys)).to_pylist()]
        require(len(set(keys)) == len(keys), f"the keys of table {name!r} are not unique")


def check_table_repeatability(stage: Stage, sample: StageSample) -> None:
    """Check that tables depend neither on the order of rows nor on earlier calls."""
    more = _list_other_arguments(stage, sample)
    expected = stage(sample.rows, *more)
    orders = {"the same rows": range(sample.rows.num_rows), "rows in another order": range(sample.rows.num_rows)[::-1]}
    for words, order in orders.items():
        result = stage(sample.rows.take(pa.array(list(order), pa.int64())), *more)
        require(all(result[name].equals(expected[name]) for name in expected), f"{words} gave other tables")


def _check_schema(schema: pa.Schema, declared: pa.Schema, what: str) -> None:
    is_same = (schema.names, schema.types) == (declared.names, declared.types)
    require(is_same, f"{what}: got {schema}, declared {declared}")


def _list_other_arguments(stage: Stage, sample: StageSample) -> tuple[Any, ...]:
    tables = ({name: sample.tables[name] for name in stage.input_tables},) if stage.input_tables else ()
    kept = ({name: stage.tables[name].schema.empty_table() for name in stage.keeps},) if stage.keeps else ()
    return (*tables, *kept, *((sample.media,) if stage.reads_media else ()))


_STUCK_S = 5.0  # longest wait for the other thread's next line: that thread may be in a long call, or wait for this one


def check_thread_safety(stage: Stage, sample: StageSample) -> None:
    """Check that a `thread_safe` stage gives two threads the same rows as each thread alone."""
    if not stage.thread_safe:
        return
    half = sample.rows.num_rows // 2
    batches = [sample.rows.slice(half), sample.rows.slice(0, half)]
    alone, steps = [stage(batch).to_pylist() for batch in batches], _Steps(type(stage))
    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(steps.call, number, partial(stage, batch)) for number, batch in enumerate(batches)]
        together = [result.exception() or result.result().to_pylist() for result in results]
    require(
        nearly_equal(together, alone),
        "two threads gave other results than one: keep nothing on an object in a call, or set `thread_safe = False`",
    )


class _Steps:
    """Two threads that go through the code of a class's package in step."""

    def __init__(self, kind: type[Stage]) -> None:
        packages = {base.__module__.partition(".")[0] for base in kind.__mro__ if issubclass(base, Stage)}
        self._packages = packages - {Stage.__module__.partition(".")[0]}
        self._changed, self._lines, self._in_step = threading.Condition(), [0, 0], True

    def call(self, number: int, call: Callable[[], Any]) -> Any:
        def line(_: FrameType, event: str, __: Any) -> Any:
            if event == "line":
                self._await_other_thread(number)
            return line

        def enter(frame: FrameType, *_: Any) -> Any:
            return line if frame.f_globals.get("__name__", "").partition(".")[0] in self._packages else None

        sys.settrace(enter)
        try:
            return call()
        finally:
            sys.settrace(None)
            self._await_other_thread(number, last=True)

    def _await_other_thread(self, number: int, *, last: bool = False) -> None:
        """Wait until the other thread has come as far. If it does not, both go on alone."""
        with self._changed:
            self._lines[number] += 1
            self._in_step = self._in_step and not last
            self._changed.notify_all()
            mine, other = self._lines[number], 1 - number
            if not self._changed.wait_for(lambda: not self._in_step or self._lines[other] >= mine, _STUCK_S):
                self._in_step = False


ROW_CHECKS: tuple[Check, ...] = (
    check_inputs_unchanged,  # runs first: a changed sample would look the same afterwards
    check_schema,
    check_repeatability,
    check_batch_independence,
    check_cut_independence,
    check_thread_safety,
    check_phases,
    check_drawing,
    check_agreement,
)
TABLE_CHECKS: tuple[Check, ...] = (check_tables, check_table_repeatability, check_phases, check_agreement)
