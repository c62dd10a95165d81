"""Whether two runs found the same: rows of both, compared by what each stage says of its own results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.telemetry.compare.runs import Run


@dataclass(frozen=True, kw_only=True)
class TableDrift:
    """One table."""

    name: str  # frames, or a table of the second pass
    rows: int  # in both, compared
    only_first: int  # of those looked at
    only_second: int
    sample: str  # which rows were looked at
    figures: Mapping[str, float]  # by name, what the stage says of them
    columns: Sequence[ColumnDrift]


@dataclass(frozen=True, kw_only=True)
class ColumnDrift:
    """One column's values on both sides."""

    name: str
    unit: str
    equal: float  # share of rows
    largest: float | None  # absolute difference; None for what has no distance
    mean: float | None


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One step's results."""

    step: str
    value: float | None  # 0 the same, 1 nothing in common; None where no rows are in both
    rows: int
    figures: Mapping[str, float]
    tables: Sequence[TableDrift]


def find_drift(first: Run, second: Run, steps: Sequence[str], most: int) -> dict[str, Drift]:
    """By step; a step without results has no entry."""
    return {}
