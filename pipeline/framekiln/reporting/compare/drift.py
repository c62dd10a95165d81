"""Agreement of two runs' results, row by row, as each stage measures it.

Rows of files that are the same in both are joined by their keys. A large table is sampled: a row is taken if the hash
of its keys is a multiple of n. So both sides take the same rows, however their files are divided.
"""

import math
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import KEYS
from framekiln.contract.output_names import FRAMES
from framekiln.contract.stage import Stage
from framekiln.output.object_store import Store
from framekiln.planning.step import is_file_column
from framekiln.reporting.compare.facts import compare_files
from framekiln.reporting.compare.runs import Run
from framekiln.reporting.plan_facts import rebuild
from framekiln.reporting.table_rows import TableFiles, batches, find_table, is_number, is_text

MOST_BYTES = 256_000_000  # bytes in memory of the columns of one step on each side
Unchosen = Callable[[str], Collection[tuple[Any, ...]]]


def sample(
    stores: tuple[Store, Store],
    name: str,
    keys: Sequence[str],
    columns: Sequence[str],
    most: int,
    left_out: Collection[str] = (),
    unchosen: Sequence[Unchosen] = (lambda _: (),) * 2,
) -> tuple[tuple[pa.Table, pa.Table], int, int]:
    """Return about `most` rows of a table on both sides, n if every n-th was read, and both tables' row counts.

    Rows of media files in `left_out` are excluded, since these cannot be compared. So are rows with the keys that
    `unchosen` returns for the path of a table's file on each side.
    """
    tables = [find_table(store, name) for store in stores]
    every = max(_choose_every(store, table, columns, most) for store, table in zip(stores, tables, strict=True))
    unwanted = pa.array(sorted(left_out), pa.string())
    first, second = (
        _take_rows(store, table, keys, columns, every, unwanted, without)
        for store, table, without in zip(stores, tables, unchosen, strict=True)
    )
    return (first, second), every, sum(table.rows for table in tables)


def _choose_every(store: Store, table: TableFiles, columns: Sequence[str], most: int) -> int:
    if not table.rows:
        return 1
    with store.parquet(table.files[0]) as file:
        meta = file.metadata
    groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)
    each = size / meta.num_rows if meta.num_rows else 0
    return max(1, math.ceil(table.rows / most), math.ceil(table.rows * each / MOST_BYTES))


def _take_rows(
    store: Store,
    table: TableFiles,
    keys: Sequence[str],
    columns: Sequence[str],
    every: int,
    unwanted: pa.Array,
    unchosen: Unchosen,
) -> pa.Table:
    parts: list[pa.Table] = []
    for path in table.files:
        without = unchosen(path)
        with store.parquet(path) as file:
            present = set(file.schema_arrow.names)
        if not set(keys) <= present:
            continue
        for batch in batches(store, path, [*keys, *(name for name in columns if name in present)]):
            rows = pa.Table.from_batches([batch])
            if len(unwanted) and "media_id" in keys:
                rows = rows.filter(pc.invert(pc.is_in(rows["media_id"], unwanted)))
            if every > 1 or without:
                ids = zip(*(rows[key].to_pylist() for key in keys), strict=True)
                taken = [zlib.crc32(str(one).encode()) % every == 0 and one not in without for one in ids]
                rows = rows.filter(pa.array(taken, pa.bool_()))
            parts += [rows] if rows.num_rows else []
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})


def common(sides: tuple[pa.Table, pa.Table], keys: Sequence[str]) -> tuple[pa.Table, pa.Table, tuple[int, int]]:
    """Return the rows that both tables have, in one order, and the number of rows in only one of them."""
    a, b = sides
    if not (len(a) and len(b)):
        return a.slice(0, 0), b.slice(0, 0), (len(a), len(b))
    ids = [zip(*(table[key].to_pylist() for key in keys), strict=True) for table in sides]
    in_a, in_b = ({key: place for place, key in enumerate(of_side)} for of_side in ids)
    both = [key for key in in_a if key in in_b]
    first, second = (pa.array([places[key] for key in both], pa.int64()) for places in (in_a, in_b))
    return a.take(first), b.take(second), (len(in_a) - len(both), len(in_b) - len(both))


@dataclass(frozen=True, kw_only=True)
class ColumnDrift:
    """One column in both tables."""

    name: str
    unit: str
    equal: float  # share of rows; two nulls are equal, and so are two NaN
    largest: float | None = None  # absolute difference; None if values are not numbers
    mean: float | None = None


def compare_columns(a: pa.Table, b: pa.Table) -> list[ColumnDrift]:
    """Compare each column of two tables with the same columns and rows."""
    found = []
    for item in a.schema:
        one, other = a[item.name].combine_chunks(), b[item.name].combine_chunks()
        unit, largest, mean = (item.metadata or {}).get(b"unit", b"").decode(), None, None
        if not len(one):
            equal = 1.0
        elif is_number(one.type) and is_number(other.type):
            missing = [values.is_null().to_numpy(zero_copy_only=False) for values in (one, other)]
            x, y = (pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False) for values in (one, other))
            both = ~missing[0] & ~missing[1]
            same = np.where(both, (x == y) | (np.isnan(x) & np.isnan(y)), missing[0] & missing[1])
            if len(apart := np.abs(x - y)[both & np.isfinite(x) & np.isfinite(y)]):
                largest, mean = float(apart.max()), float(apart.mean())
            equal = float(same.mean())
        else:
            if is_text(one.type) and is_text(other.type):
                one, other = one.cast(pa.string()), other.cast(pa.string())
            pairs = zip(one, other, strict=True)
            equal = float(np.mean([x.equals(y) or not (x.is_valid or y.is_valid) for x, y in pairs]))
        found.append(ColumnDrift(name=item.name, unit=unit, equal=equal, largest=largest, mean=mean))
    return found


_VALUE = "drift"


@dataclass(frozen=True, kw_only=True)
class TableDrift:
    """One table of a step."""

    name: str  # frames, or a table of the second pass
    rows: int  # compared rows in both
    only_first: int  # rows of only the first side, among the sampled ones
    only_second: int
    every: int  # one row in this many was sampled
    value: float | None
    figures: Mapping[str, float]  # from the stage
    columns: Sequence[ColumnDrift]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class StepDrift:
    """One step's results."""

    step: str
    tables: Sequence[TableDrift]

    @property
    def value(self) -> float | None:
        """The drift of the table with the most: 0 the same, 1 nothing in common; None if no rows are in both."""
        return max((table.value for table in self.tables if table.value is not None), default=None)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def figures(self) -> dict[str, float]:
        """Figures of all tables, and the share of sampled rows missing on either side."""
        figures = {name: value for table in self.tables for name, value in table.figures.items()}
        missing = sum(table.only_first + table.only_second for table in self.tables)
        return figures | {"missing": missing / (missing + self.rows) if missing + self.rows else 0.0}


def find_drift(first: Run, second: Run, steps: Sequence[str], most: int) -> dict[str, StepDrift]:
    """Return the drift of each step, over about `most` rows of a table; steps without results or code are left out."""
    stages: dict[str, Stage] = {}
    for run in (first, second):  # the second's wins
        stages |= rebuild({step: record for step in steps if (record := run.part("steps", step))})
    if not stages:
        return {}
    left_out = {name for files in compare_files(first, second, ("A", "B")).other.values() for name in files}
    drift, stores = {}, (first.store, second.store)
    for step, stage in ((step, stages[step]) for step in steps if step in stages):
        is_same_class = len({run.part("steps", step).get("use") for run in (first, second)}) == 1
        unchosen = [partial(run.unchosen, step) for run in (first, second)]
        declared = {name: (table.keys, table.schema.names) for name, table in stage.tables.items()}
        if stage.scope.first_pass:
            names = [item.name for item in stage.outputs if not is_file_column(item)]
            declared = {FRAMES: (KEYS, names)} if names else {}
        tables = []
        for name, (keys, columns) in declared.items():
            others = [column for column in columns if column not in keys]
            rows = sample(stores, name, keys, others, most, left_out, unchosen)
            tables.append(_compare_table(stage, is_same_class, name, keys, others, rows))
        if tables:
            drift[step] = StepDrift(step=step, tables=tables)
    return drift


def _compare_table(
    stage: Stage,
    same: bool,
    name: str,
    keys: Sequence[str],
    columns: Sequence[str],
    sampled: tuple[tuple[pa.Table, pa.Table], int, int],
) -> TableDrift:
    """Compare one table; the stage compares its results only if both runs used one class."""
    rows, every, total = sampled
    a, b, only = common(rows, keys)
    names = [column for column in columns if column in a.column_names and column in b.column_names]
    a, b, figures, note = a.select(names), b.select(names), None, ""
    try:
        figures = stage.agreement(a, b, "" if stage.scope.first_pass else name) if same and len(a) else None
        if figures is not None and not math.isfinite(figures[_VALUE]):
            raise ValueError(f"drift is {figures[_VALUE]}")
    except Exception as error:  # a stage may raise anything, as on another version's results
        told = f"{type(error).__name__}: {error}"
        figures, note = None, f"its own comparison failed ({told}), so values are compared one by one"
    by_column = compare_columns(a, b)
    value = figures[_VALUE] if figures is not None else max((1 - column.equal for column in by_column), default=0.0)
    drift, found = value if len(a) else None, len(a) + sum(only)
    if not stage.scope.first_pass and found:  # rows are results there, so one without a counterpart has drifted
        drift = 1 - (1 - value) * len(a) / found
    elif not stage.scope.first_pass and not total:
        drift = 0.0  # both tables are empty
    return TableDrift(
        name=name,
        rows=len(a),
        only_first=only[0],
        only_second=only[1],
        every=every,
        value=drift,
        figures={key: float(figure) for key, figure in (figures or {}).items() if key != _VALUE},
        columns=by_column,
        note=note,
    )
