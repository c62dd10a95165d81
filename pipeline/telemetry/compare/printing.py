"""The comparison on a terminal: what was done, what is different around it, and the figures of each step."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipeline.telemetry.compare.changes import NOTHING
from pipeline.telemetry.compare.comparison import Comparison, Line, Pair
from pipeline.telemetry.compare.drift import TableDrift
from pipeline.telemetry.compare.values import ColumnDrift
from pipeline.telemetry.printing import tame
from pipeline.telemetry.report.words import number

_MOST_COLUMNS = 8  # of a step, in one cell; all are in the file
NOT_MEASURED = "not measured"
METHOD = (
    "Intervals (95 %) come from 1,000 seeded resamples of calls, in blocks of consecutive calls of one worker, since "
    "neighbours are alike; of repeated runs, runs are resampled too. A difference whose interval holds 0 is called "
    "none."
)


def print_comparison(console: Console, comparison: Comparison) -> None:
    """All of it."""
    for side in comparison.sides:
        say(console, f"{side.name}: {side.paths}")
    for pair in comparison.pairs:
        if len(comparison.pairs) > 1:
            console.rule(f"{pair.second.name} beside {pair.first.name}")
        _print_pair(console, pair)
    say(console, METHOD)


def _print_pair(console: Console, pair: Pair) -> None:
    for note in pair.notes:
        say(console, f"Note: {note}")
    say(console, f"Input: {pair.files.words}")
    _print_work(console, pair)
    names = pair.first.name, pair.second.name
    if pair.changes:
        rows = [[one.where, one.what, one.first, one.second] for one in pair.changes]
        console.print(_table("What changed around it", ("where", "what", *names), rows))
    heads = ("step", "figure", *names, f"{names[1]}/{names[0]}", "interval", "difference")
    rows = [_cells(line, first=not i) for lines in pair.lines.values() for i, line in enumerate(_telling(lines))]
    console.print(_table("Figures", heads, rows, right=heads[2:6]))
    _print_drift(console, pair)
    for why, steps in unknown(pair).items():
        say(console, f"No interval for {', '.join(steps)}: {why}.")


def _print_work(console: Console, pair: Pair) -> None:
    rows = [[one.step, one.verdict, "; ".join(one.why)] for one in pair.work]
    console.print(_table("Same work?", ("step", "work", "why"), rows))


def shown(lines: Sequence[Line]) -> list[Line]:
    """Lines that either side measured; energy always, since people ask for it."""
    asked = [line for line in lines if line.name == "energy"]
    return [line for line in lines if line.first is not None or line.second is not None or line in asked]


def _telling(lines: Sequence[Line]) -> list[Line]:
    """Without counts that are equal: a terminal is narrow."""
    equal = [line for line in lines if line.name in ("workers", "set_up", "errors") and line.first == line.second]
    return [line for line in shown(lines) if line not in equal]


def _print_drift(console: Console, pair: Pair) -> None:
    names = pair.first.name, pair.second.name
    heads = ("step", "table", "rows in both", *(f"only {name}" for name in names), "drift", "what differs")
    rows = [[drift.step, *drift_cells(one)] for drift in pair.drift.values() for one in drift.tables]
    if rows:
        console.print(_table("Results (drift: 0 the same, 1 nothing in common)", heads, rows, right=heads[2:6]))


def drift_cells(table: TableDrift) -> list[str]:
    """Name, rows in both and in one only, drift, and what the stage or the columns say."""
    looked = f" (1 row in {table.every:,})" if table.every > 1 else ""
    differing = [one for one in table.columns if one.equal < 1]
    said = [f"{name.replace('_', ' ')} {number(value)}" for name, value in table.figures.items()]
    said = said or [f"{one.name} {_column(one)}" for one in differing][:_MOST_COLUMNS]
    if not differing:
        said = ["every value is equal"] * bool(table.rows)
    drift = NOT_MEASURED if table.value is None else number(table.value)
    counts = [number(table.rows) + looked, number(table.only_first), number(table.only_second)]
    return [table.name, *counts, drift, "; ".join([*said, *([table.note] if table.note else [])])]


def _column(one: ColumnDrift) -> str:
    far = "" if one.largest is None else f", at most {number(one.largest)} {one.unit}".rstrip()
    return f"equal in {100 * one.equal:.3g} % of rows{far}"


def unknown(pair: Pair) -> dict[str, list[str]]:
    """Steps by why chance is not known there."""
    found: dict[str, list[str]] = {}
    for step, lines in pair.lines.items():
        for why in dict.fromkeys(line.why_unknown for line in lines if line.why_unknown and line.change is not None):
            found.setdefault(why, []).append(step)
    return found


def _cells(line: Line, *, first: bool) -> list[str]:
    title = f"{line.name}, {line.unit}" if line.unit else line.name
    step = line.step if first else ""
    return [step, title, value(line.first), value(line.second), ratio(line), span(line), line.difference]


def value(found: float | None) -> str:
    """A figure."""
    return NOT_MEASURED if found is None else number(found)


def ratio(line: Line) -> str:
    """Second by first."""
    return NOTHING if line.change is None else f"{1 + line.change:.3g}"


def span(line: Line) -> str:
    """The interval; empty where there is none."""
    found = line.interval
    return "" if found is None else f"{100 * found.low:+.1f} to {100 * found.high:+.1f} %"


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name in heads:
        table.add_column(escape(name), justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(tame(cell)) for cell in row))
    return table


def say(console: Console, text: str) -> None:
    """A line, whatever signs it holds."""
    console.print(tame(text), highlight=False, soft_wrap=True, markup=False)
