"""The tables of a comparison, for the page and the terminal."""

from collections.abc import Sequence
from dataclasses import replace

from framekiln.reporting.compare.comparison import NONE, UNKNOWN, FigurePair, Pair
from framekiln.reporting.compare.drift import TableDrift
from framekiln.reporting.compare.facts import OF_THE_RUN
from framekiln.reporting.kit.texts import Column, TextTable, number, words

NOT_MEASURED = "not measured"
METHOD = (
    "Intervals (95 %) come from calls, left out in blocks of consecutive ones, since neighbouring calls are alike. "
    "With repeated runs, they come from the runs too. A difference whose interval contains 0 is shown as none."
)
_LESS_IS_BETTER = (
    *("ms_row", "mean", "p50", "p90", "p95", "p99", "vram", "peak_gb", "reserved_gb", "ram_gb"),
    *("set_up", "errors", "seconds", "energy", "cost"),
)
_COUNTS = ("workers", "set_up", "errors")  # left out of a terminal where both sides have the same
_MOST_COLUMNS = 8  # of a step, in one cell; the page lists all


def value_text(value: float | None) -> str:
    """Return a figure."""
    return NOT_MEASURED if value is None else number(value)


def interval_text(figure: FigurePair) -> str:
    """Return the interval of a change; empty where there is none."""
    interval = figure.interval
    return "" if interval is None else f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f} %"


def work_table(pair: Pair) -> TextTable:
    """Return whether each step did the same work."""
    why = words("What differs", lambda step: "; ".join(step.why), "roomy")
    return TextTable(
        title="Same work?", columns=(words("Step", "step"), words("Work", "verdict"), why), items=pair.work
    )


def files_table(pair: Pair) -> TextTable:
    """Return the first files that differ."""
    columns = words("File", lambda example: example[1]), words("How", lambda example: example[0])
    return TextTable(title="Files that differ", columns=columns, items=pair.files.examples)


def changes_table(pair: Pair) -> TextTable:
    """Return what changed around the work."""
    sides = words(pair.first.name, "first"), words(pair.second.name, "second")
    columns = words("Where", "where"), words("What", "what"), *sides
    return TextTable(title="What changed around the work", columns=columns, items=pair.changes)


def figures_table(figures: Sequence[FigurePair], names: tuple[str, str], head: str = "Step") -> TextTable:
    """Return the figures of two sides by step, with energy always and others where a side measured them."""
    shown = [one for one in figures if one.first is not None or one.second is not None or one.name == "energy"]
    columns = (
        words(head, lambda one: "The whole run" if one.step == OF_THE_RUN else one.step),
        words("Figure", "title"),
        words("", "unit", "muted"),
        Column(names[0], "first", show=number, empty=NOT_MEASURED),
        Column(names[1], "second", show=number, empty=NOT_MEASURED),
        Column(f"{names[1]}/{names[0]}", lambda one: None if one.change is None else f"{1 + one.change:.3g}"),
        Column("Interval", interval_text),
        words("Difference", "difference", tone=tone),
    )
    return TextTable(title="Figures", columns=columns, items=shown, grouped=True)


def all_figures(pair: Pair) -> TextTable:
    """Return all figures of a pair."""
    figures = [one for of_step in pair.figures.values() for one in of_step]
    return figures_table(figures, (pair.first.name, pair.second.name))


def brief_figures(pair: Pair) -> TextTable:
    """Return the figures for a terminal: named as gates call them, and without equal counts."""
    table = all_figures(pair)
    kept = [one for one in table.items if one.name not in _COUNTS or one.first != one.second]
    step, _, _, *values = table.columns
    name = words("Figure", lambda one: f"{one.name}, {one.unit}" if one.unit else one.name)
    return replace(table, columns=(step, name, *values), items=kept)


def results_table(pair: Pair) -> TextTable:
    """Return how far the results of each step agree, a row a table."""
    found = [(drift.step, table) for drift in pair.drift.values() for table in drift.tables]
    columns = (
        words("Step", lambda row: row[0]),
        words("Table", lambda row: row[1].name),
        Column("Rows in both", _count_rows),
        Column(f"Only {pair.first.name}", lambda row: row[1].only_first),
        Column(f"Only {pair.second.name}", lambda row: row[1].only_second),
        Column("Drift", lambda row: row[1].value, empty=NOT_MEASURED),
        words("What differs", lambda row: _describe_drift(row[1]), "roomy"),
    )
    return TextTable(title="Results (drift: 0 the same, 1 nothing in common)", columns=columns, items=found)


def columns_table(pair: Pair) -> TextTable:
    """Return how far each column agrees."""
    found = [(drift.step, one) for drift in pair.drift.values() for table in drift.tables for one in table.columns]
    columns = (
        words("Step", lambda row: row[0]),
        words("Column", lambda row: row[1].name, "code"),
        Column("Equal rows", lambda row: f"{100 * row[1].equal:.4g} %"),
        Column("Largest difference", lambda row: row[1].largest),
        Column("Mean difference", lambda row: row[1].mean),
        words("Unit", lambda row: row[1].unit),
    )
    return TextTable(title="Columns compared", columns=columns, items=found)


def missing_intervals(pair: Pair) -> dict[str, list[str]]:
    """Return steps by the reason for their missing intervals."""
    steps: dict[str, list[str]] = {}
    for step, figures in pair.figures.items():
        reasons = (figure.why_unknown for figure in figures if figure.why_unknown and figure.change is not None)
        for reason in dict.fromkeys(reasons):
            steps.setdefault(reason, []).append(step)
    return steps


def tone(figure: FigurePair) -> str:
    """Return `good` or `bad` for a difference that chance does not explain, else nothing."""
    name = "ms_row" if figure.name.startswith("phase ") else figure.name
    if not figure.change or figure.interval is None or figure.difference in (NONE, UNKNOWN):
        return ""
    if name != "rate" and name not in _LESS_IS_BETTER:
        return ""
    return "good" if (figure.change > 0) == (name == "rate") else "bad"


def _count_rows(row: tuple[str, TableDrift]) -> str:
    return number(row[1].rows) + (f" (1 row in {row[1].every:,})" if row[1].every > 1 else "")


def _describe_drift(table: TableDrift) -> str:
    differing = [column for column in table.columns if column.equal < 1]
    details = [f"{name.replace('_', ' ')} {number(value)}" for name, value in table.figures.items()]
    for column in differing[: 0 if details else _MOST_COLUMNS]:
        most = "" if column.largest is None else f", at most {number(column.largest)} {column.unit}".rstrip()
        details.append(f"{column.name} equal in {100 * column.equal:.3g} % of rows{most}")
    if not differing:
        details = ["every value is equal"] * bool(table.rows)
    return "; ".join([*details, *([table.note] if table.note else [])])
