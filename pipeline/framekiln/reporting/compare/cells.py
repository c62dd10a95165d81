"""Text of the comparison that the terminal and the page share."""

from collections.abc import Sequence

from framekiln.reporting.compare.comparison import FigurePair, Pair
from framekiln.reporting.compare.drift.columns import ColumnDrift
from framekiln.reporting.compare.drift.drift import TableDrift
from framekiln.reporting.formatting import MISSING, number

NOT_MEASURED = "not measured"
METHOD = (
    "Intervals (95 %) come from 1,000 seeded resamples of calls, in blocks of consecutive calls of one worker, since "
    "neighbouring calls are alike. With repeated runs, runs are resampled too. A difference whose interval contains 0 "
    "is shown as none."
)
_MOST_COLUMNS = 8  # of a step, in one cell; the page lists all


def measured(figures: Sequence[FigurePair]) -> list[FigurePair]:
    """Return the figures that either side measured, and energy in any case."""
    return [
        figure for figure in figures if figure.first is not None or figure.second is not None or figure.name == "energy"
    ]


def value_text(value: float | None) -> str:
    """Return a figure."""
    return NOT_MEASURED if value is None else number(value)


def ratio_text(figure: FigurePair) -> str:
    """Return the second side's value divided by the first's."""
    return MISSING if figure.change is None else f"{1 + figure.change:.3g}"


def interval_text(figure: FigurePair) -> str:
    """Return the interval of a change; empty where there is none."""
    interval = figure.interval
    return "" if interval is None else f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f} %"


def missing_intervals(pair: Pair) -> dict[str, list[str]]:
    """Return steps by the reason for their missing intervals."""
    steps: dict[str, list[str]] = {}
    for step, figures in pair.figures.items():
        reasons = (figure.why_unknown for figure in figures if figure.why_unknown and figure.change is not None)
        for reason in dict.fromkeys(reasons):
            steps.setdefault(reason, []).append(step)
    return steps


def drift_cells(table: TableDrift) -> list[str]:
    """Return a table's name, its rows in both runs and in one only, its drift, and what differs."""
    sampled = f" (1 row in {table.every:,})" if table.every > 1 else ""
    differing = [column for column in table.columns if column.equal < 1]
    details = [f"{name.replace('_', ' ')} {number(value)}" for name, value in table.figures.items()]
    details = details or [f"{column.name} {_column_text(column)}" for column in differing][:_MOST_COLUMNS]
    if not differing:
        details = ["every value is equal"] * bool(table.rows)
    counts = [number(table.rows) + sampled, number(table.only_first), number(table.only_second)]
    return [table.name, *counts, value_text(table.value), "; ".join([*details, *([table.note] if table.note else [])])]


def _column_text(column: ColumnDrift) -> str:
    largest = "" if column.largest is None else f", at most {number(column.largest)} {column.unit}".rstrip()
    return f"equal in {100 * column.equal:.3g} % of rows{largest}"
