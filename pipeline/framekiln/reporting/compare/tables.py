"""The tables of a comparison, for the page and the terminal."""

from collections.abc import Sequence

from framekiln.planning.figures import OF_THE_RUN
from framekiln.reporting.compare.comparison import NONE, UNKNOWN, FigurePair, Pair
from framekiln.reporting.compare.drift import TableDrift
from framekiln.reporting.compare.facts import SAME
from framekiln.reporting.kit.texts import MISSING, Column, TextTable, number, words

NOT_MEASURED = "not measured"
METHOD = (
    "Intervals (95 %) come from a block jackknife of calls, and from repeated runs if there are any. "
    "A difference is shown as none if its interval contains 0."
)
SIGN = f"Change is {NONE} if chance alone explains it. A ? marks a change without an interval."
_LESS_IS_BETTER = (
    *("ms_row", "mean", "p50", "p90", "p95", "p99", "vram", "peak_gb", "reserved_gb", "ram_gb"),
    *("set_up", "errors", "seconds", "energy", "cost"),
)
_SPEEDS = ("rate", "ms_row")
_NOTED = ("vram", "errors")  # figures of a step that are shown only if they differ
_MOST_COLUMNS = 8  # columns of a step, in one cell; the page lists all


def interval_text(figure: FigurePair) -> str:
    """Return the interval of a change; empty without one."""
    interval = figure.interval
    return "" if interval is None else f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f} %"


def work_table(pair: Pair) -> TextTable:
    """Return the steps with different work, and why."""
    why = words("What differs", lambda step: "; ".join(step.why), "roomy", optional=True)
    other = [step for step in pair.work if step.verdict != SAME]
    return TextTable(title="Other work", columns=(words("Step", "step"), words("Work", "verdict"), why), items=other)


def equal_work(pair: Pair) -> str:
    """Return a sentence on the steps with the same work; empty for none."""
    same = [step.step for step in pair.work if step.verdict == SAME]
    return f"The same work in {', '.join(same)}." if same else ""


def files_table(pair: Pair) -> TextTable:
    """Return the first files that differ."""
    columns = words("File", lambda example: example[1]), words("How", lambda example: example[0])
    return TextTable(title="Files that differ", columns=columns, items=pair.files.examples)


def changes_table(pair: Pair) -> TextTable:
    """Return the changes around the work."""
    sides = words(pair.first.name, "first"), words(pair.second.name, "second")
    columns = words("Where", "where"), words("What", "what"), *sides
    return TextTable(title="What changed around the work", columns=columns, items=pair.changes)


def figures_table(figures: Sequence[FigurePair], names: tuple[str, str], head: str = "Step") -> TextTable:
    """Return the figures of two sides by step, if a side measured them."""
    shown = [one for one in figures if one.first is not None or one.second is not None]
    columns = (
        words(head, lambda one: "The whole run" if one.step == OF_THE_RUN else one.step),
        words("Figure", "title"),
        words("", "unit", "muted"),
        Column(names[0], "first", show=number, empty=NOT_MEASURED),
        Column(names[1], "second", show=number, empty=NOT_MEASURED),
        Column(f"{names[1]}/{names[0]}", lambda one: None if one.change is None else f"{1 + one.change:.3g}"),
        Column("Interval", interval_text, optional=True),
        words("Difference", "difference", tone=tone, optional=True),
    )
    return TextTable(title="Figures", columns=columns, items=shown, grouped=True)


def pair_figures(pair: Pair, *, every: bool = True) -> TextTable:
    """Return all figures of a pair; or the whole run's, and steps' memory and errors if they differ."""
    found = (one for of_step in pair.figures.values() for one in of_step)
    noted = OF_THE_RUN, *_NOTED
    shown = [one for one in found if every or one.step in noted or (one.name in noted and one.first != one.second)]
    return figures_table(shown, (pair.first.name, pair.second.name))


def speeds_table(pair: Pair) -> TextTable:
    """Return the rate and the cost of each step on both sides, a row a step."""
    items = []
    for step, figures in pair.figures.items():
        known = {one.name: one for one in figures if one.name in _SPEEDS and (one.first, one.second) != (None, None)}
        items += [{"step": step, **known}] if known else []
    columns = [words("Step", "step")]
    for name, title in zip(_SPEEDS, ("rows/s", "ms/row"), strict=True):
        columns += [Column(f"{title} {pair.first.name}", f"{name}.first", show=number)]
        columns += [Column(pair.second.name, f"{name}.second", show=number)]
        columns += [Column("change", name, show=_tell_change)]
    return TextTable(title="Speed", columns=columns, items=items)


def results_table(pair: Pair, *, equal: bool = True) -> TextTable:
    """Return how far each step's results agree, a row for each table, with or without equal tables."""
    found = [(drift.step, table) for drift in pair.drift.values() for table in drift.tables]
    found = [row for row in found if equal or not _is_equal(row[1])]
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


def equal_results(pair: Pair) -> str:
    """Return a sentence on the steps with equal results; empty for none."""
    names = [name for name, drift in pair.drift.items() if all(map(_is_equal, drift.tables)) and drift.rows]
    rows = sum(pair.drift[name].rows for name in names)
    return f"Equal results in {', '.join(names)}: {number(rows)} rows of tables." if names else ""


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
        for reason in dict.fromkeys(reason.partition(" (")[0] for reason in reasons):
            steps.setdefault(reason, []).append(step)
    return steps


def tone(figure: FigurePair) -> str:
    """Return `good` or `bad` for a difference beyond chance, else nothing."""
    name = "ms_row" if figure.name.startswith("phase ") else figure.name
    if not figure.change or figure.interval is None or figure.difference in (NONE, UNKNOWN):
        return ""
    if name != "rate" and name not in _LESS_IS_BETTER:
        return ""
    return "good" if (figure.change > 0) == (name == "rate") else "bad"


def _tell_change(figure: FigurePair) -> str:
    share = f"{100 * figure.change:+.0f} %" if figure.change is not None else MISSING
    return f"{share} ?" if figure.difference == UNKNOWN else NONE if figure.difference == NONE else share


def _is_equal(table: TableDrift) -> bool:
    return table.value == 0 and not (table.only_first or table.only_second or table.note)


def _count_rows(row: tuple[str, TableDrift]) -> str:
    return number(row[1].rows) + (f" (1 row in {row[1].every:,})" if row[1].every > 1 else "")


def _describe_drift(table: TableDrift) -> str:
    differing = [column for column in table.columns if column.equal < 1]
    details = [f"{name.replace('_', ' ')} {number(value)}" for name, value in table.figures.items()]
    for column in differing[: 0 if details else _MOST_COLUMNS]:
        most = "" if column.largest is None else f", at most {number(column.largest)} {column.unit}".rstrip()
        details.append(f"{column.name} equal in {100 * column.equal:.3g} % of rows{most}")
    if not differing:
        where = " in the rows of both" if table.only_first or table.only_second else ""
        details = [f"every value is equal{where}"] * bool(table.rows)
    return "; ".join([*details, *([table.note] if table.note else [])])
