"""The comparison on a terminal: same work or not, changes around it, figures and results of each step."""

from rich.console import Console

from framekiln.reporting.compare import tables
from framekiln.reporting.compare.comparison import Comparison, Pair
from framekiln.reporting.compare.page import verdict
from framekiln.reporting.terminal.console import print_line, show_table


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
    print_line(console, tables.METHOD)


def _print_pair(console: Console, pair: Pair) -> None:
    for note in pair.notes:
        print_line(console, f"Note: {note}")
    print_line(console, f"Input: {pair.files.sentence}")
    for make in (tables.work_table, tables.changes_table, tables.brief_figures, tables.results_table):
        table = make(pair)
        if table.items:
            show_table(console, table)
    for reason, steps in tables.missing_intervals(pair).items():
        print_line(console, f"No interval for {', '.join(steps)}: {reason}.")
