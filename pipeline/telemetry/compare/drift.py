"""Whether two runs found the same: rows of both, compared by what each stage says of its own results.

Rows are joined by their keys, those of files that are the same in both. Of a large table some are looked at: a row is
taken where a hash of its keys is a multiple of a number, so both sides choose the same rows however their files are
cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipeline.columns import KEYS
from pipeline.second import FRAMES
from pipeline.stage import Stage
from pipeline.step import is_file_column
from pipeline.telemetry.compare.runs import Run
from pipeline.telemetry.compare.sampled import Side, common, sample
from pipeline.telemetry.compare.values import ColumnDrift, compare_columns
from pipeline.telemetry.compare.work import compare_files
from pipeline.telemetry.report.rebuilt import rebuild

_VALUE = "drift"


@dataclass(frozen=True, kw_only=True)
class TableDrift:
    """One table of a step."""

    name: str  # frames, or a table of the second pass
    rows: int  # in both, compared
    only_first: int  # of those looked at
    only_second: int
    every: int  # one row in so many was looked at
    value: float | None
    figures: Mapping[str, float]  # what the stage says of them
    columns: Sequence[ColumnDrift]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One step's results."""

    step: str
    tables: Sequence[TableDrift]

    @property
    def value(self) -> float | None:
        """0 the same, 1 nothing in common: of the table that drifted most; None where no rows are in both."""
        return max((one.value for one in self.tables if one.value is not None), default=None)

    @property
    def rows(self) -> int:
        """Compared, of all tables."""
        return sum(one.rows for one in self.tables)

    @property
    def figures(self) -> dict[str, float]:
        """Of all tables; what is missing on either side is a share of the rows looked at."""
        found = {name: value for one in self.tables for name, value in one.figures.items()}
        lost = sum(one.only_first + one.only_second for one in self.tables)
        return found | {"missing": lost / (lost + self.rows) if lost + self.rows else 0.0}


def find_drift(first: Run, second: Run, steps: Sequence[str], most: int) -> dict[str, Drift]:
    """By step; a step without results, or whose code is gone, has no entry.

    Args:
        first: a run.
        second: another one.
        steps: those that both have.
        most: about how many rows of each table to look at.
    """
    stages: dict[str, Stage] = {}
    for run in (first, second):  # the second's count, as an older version's code may be gone
        stages |= rebuild({step: told for step in steps if (told := run.part("steps", step))})
    if not stages:
        return {}
    files = compare_files(first, second, ("", ""))
    left_out = {*files.changed, *files.only_first, *files.only_second}
    sides = Side(store=first.store, left_out=left_out), Side(store=second.store, left_out=left_out)
    found = {}
    for step in steps:
        uses = [run.part("steps", step).get("use") for run in (first, second)]
        if step in stages and (tables := _tables(stages[step], uses[0] == uses[1], sides, most)):
            found[step] = Drift(step=step, tables=tables)
    return found


def _tables(stage: Stage, same: bool, sides: tuple[Side, Side], most: int) -> list[TableDrift]:
    wanted: dict[str, tuple[Sequence[str], list[str]]]
    if stage.scope.first_pass:
        names = [item.name for item in stage.outputs if not is_file_column(item)]
        wanted = {FRAMES: (KEYS, names)} if names else {}
    else:
        wanted = {
            name: (table.keys, [one for one in table.schema.names if one not in table.keys])
            for name, table in stage.tables.items()
        }
    return [_compare(stage, same, name, *columns, sides, most) for name, columns in wanted.items()]


def _compare(
    stage: Stage,
    same: bool,
    name: str,
    keys: Sequence[str],
    columns: Sequence[str],
    sides: tuple[Side, Side],
    most: int,
) -> TableDrift:
    """One table; only where both runs used one class is it asked what it says of its results."""
    found, every, total = sample(sides, name, keys, columns, most)
    a, b, only = common(found, keys)
    names = [one for one in columns if one in a.column_names and one in b.column_names]
    a, b = a.select(names), b.select(names)
    told, note = _agreement(stage, a, b, "" if stage.scope.first_pass else name) if same and len(a) else (None, "")
    each = compare_columns(a, b)
    value = told[_VALUE] if told is not None else max((1 - one.equal for one in each), default=0.0)
    return TableDrift(
        name=name,
        rows=len(a),
        only_first=only[0],
        only_second=only[1],
        every=every,
        value=(value if len(a) else None) if stage.scope.first_pass else _with_missing(value, len(a), sum(only), total),
        figures={key: float(figure) for key, figure in (told or {}).items() if key != _VALUE},
        columns=each,
        note=note,
    )


def _with_missing(value: float, rows: int, only: int, total: int) -> float | None:
    """Drift of a table of the second pass, whose rows are results themselves: one that has no equal has drifted."""
    if not rows + only:
        return None if total else 0.0  # rows there are, but none of files that are the same; or none at all, as before
    return 1 - (1 - value) * rows / (rows + only)


def _agreement(stage: Stage, a: pa.Table, b: pa.Table, table: str) -> tuple[dict[str, float] | None, str]:
    """What the stage says, and a sentence where it failed: another version may have written what it cannot read."""
    try:
        told = stage.agreement(a, b, table)
        if told is not None and not math.isfinite(told[_VALUE]):
            raise ValueError(f"drift is {told[_VALUE]}")
    except Exception as error:  # whatever a stage's code may raise: its columns are compared one by one
        return None, f"its own comparison failed ({type(error).__name__}: {error}), so values are compared one by one"
    return told, ""
