"""The comparison on a terminal: same work or not, changes around it, figures and results of each step."""

from collections.abc import Sequence

from rich.console import Console

from framekiln.reporting.compare.cells import (
    METHOD,
    drift_cells,
    interval_text,
    measured,
    missing_intervals,
    ratio_text,
    value_text,
)
from framekiln.reporting.compare.comparison import Comparison, FigurePair, Pair
from framekiln.reporting.compare.verdict import verdict
from framekiln.reporting.terminal.console import print_line, print_table


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print every pair of a comparison."""
    for pair in comparison.pairs:
        print_line(console, verdict(pair), style="bold")
    for side in comparison.sides:
        print_line(console, f"{side.name}: {side.paths}")
    for pair in comparison.pairs:
        if len(comparison.pairs) > 1:
            console.rule(f"{pair.second.name} beside {pair.first.name}")
        _print_pair(console, pair)
    print_line(console, METHOD)


def _print_pair(console: Console, pair: Pair) -> None:
    names = pair.first.name, pair.second.name
    for note in pair.notes:
        print_line(console, f"Note: {note}")
    print_line(console, f"Input: {pair.files.sentence}")
    rows = [[step.step, step.verdict, "; ".join(step.why)] for step in pair.work]
    print_table(console, ("step", "work", "why"), rows, title="Same work?")
    if pair.changes:
        rows = [[change.where, change.what, change.first, change.second] for change in pair.changes]
        print_table(console, ("where", "what", *names), rows, title="What changed around it")
    heads = ("step", "figure", *names, f"{names[1]}/{names[0]}", "interval", "difference")
    rows = [_cells(one, first=not i) for figures in pair.figures.values() for i, one in enumerate(_relevant(figures))]
    print_table(console, heads, rows, title="Figures", right=heads[2:6])
    columns = ("step", "table", "rows in both", *(f"only {name}" for name in names), "drift", "what differs")
    rows = [[drift.step, *drift_cells(table)] for drift in pair.drift.values() for table in drift.tables]
    if rows:
        title = "Results (drift: 0 the same, 1 nothing in common)"
        print_table(console, columns, rows, title=title, right=columns[2:6])
    for reason, steps in missing_intervals(pair).items():
        print_line(console, f"No interval for {', '.join(steps)}: {reason}.")


def _relevant(figures: Sequence[FigurePair]) -> list[FigurePair]:
    """Return the measured figures without equal counts, since a terminal is narrow."""
    counts = ("workers", "set_up", "errors")
    return [figure for figure in measured(figures) if figure.name not in counts or figure.first != figure.second]


def _cells(figure: FigurePair, *, first: bool) -> list[str]:
    title = f"{figure.name}, {figure.unit}" if figure.unit else figure.name
    values = [value_text(figure.first), value_text(figure.second), ratio_text(figure), interval_text(figure)]
    return [figure.step if first else "", title, *values, figure.difference]
