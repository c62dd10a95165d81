"""Columns compared value by value, knowing nothing of what they mean."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.reporting.table_rows import is_number, is_text


@dataclass(frozen=True, kw_only=True)
class ColumnDrift:
    """One column in both tables."""

    name: str
    unit: str
    equal: float  # share of rows; two nulls are equal, and so are two NaN
    largest: float | None = None  # absolute difference; None where values are not numbers
    mean: float | None = None


def compare_columns(a: pa.Table, b: pa.Table) -> list[ColumnDrift]:
    """Compare each column of two tables with the same columns and rows."""
    return [_column(item, a[item.name].combine_chunks(), b[item.name].combine_chunks()) for item in a.schema]


def _column(item: pa.Field, a: pa.Array, b: pa.Array) -> ColumnDrift:
    unit = (item.metadata or {}).get(b"unit", b"").decode()
    if not len(a):
        return ColumnDrift(name=item.name, unit=unit, equal=1.0)
    if is_number(a.type) and is_number(b.type):
        return _numbers(item.name, unit, a, b)
    if is_text(a.type) and is_text(b.type):
        a, b = a.cast(pa.string()), b.cast(pa.string())
    same = [x.equals(y) or not (x.is_valid or y.is_valid) for x, y in zip(a, b, strict=True)]
    return ColumnDrift(name=item.name, unit=unit, equal=sum(same) / len(same))


def _numbers(name: str, unit: str, a: pa.Array, b: pa.Array) -> ColumnDrift:
    missing = [values.is_null().to_numpy(zero_copy_only=False) for values in (a, b)]
    x, y = (pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False) for values in (a, b))
    both = ~missing[0] & ~missing[1]
    equal = np.where(both, (x == y) | (np.isnan(x) & np.isnan(y)), missing[0] & missing[1])
    differences = np.abs(x - y)[both & np.isfinite(x) & np.isfinite(y)]
    largest, mean = (float(differences.max()), float(differences.mean())) if len(differences) else (None, None)
    return ColumnDrift(name=name, unit=unit, equal=float(equal.mean()), largest=largest, mean=mean)
