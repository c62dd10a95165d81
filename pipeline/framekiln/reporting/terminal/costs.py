"""The estimate of a run as a table: rows, time, gigabytes and money of each step and of the whole."""

from collections.abc import Callable

from rich.console import Console

from framekiln.lab.predict.costs import Costs, StepCost
from framekiln.lab.predict.pace import Interval
from framekiln.reporting.kit.texts import Column, TextTable, duration, number, words
from framekiln.reporting.terminal.console import print_wrapped, show_table

_WHOLE = "whole"


def costs_table(costs: Costs, price_per_hour: float | None = None) -> TextTable:
    """Return each step and the whole, which is less than their sum where steps run beside each other."""
    whole = StepCost(step=_WHOLE, rows=costs.rows or Interval(central=0, low=0, high=0), hours=costs.hours, gb=costs.gb)
    money = [Column("money", lambda step: step.hours and _write(step.hours, _write_money, price_per_hour or 0))]
    columns = (
        words("step", "step"),
        Column("rows", lambda step: _write(step.rows, lambda rows: f"{rows:,.0f}")),
        Column("s/row", "row_s", optional=True),
        Column("time", lambda step: step.hours and _write(step.hours, duration, 3600)),
        Column("saved", lambda step: duration(step.saved * 3600) if step.saved else None, optional=True),
        Column("size", lambda step: step.gb and _write(step.gb, _write_size)),
        *(money if price_per_hour is not None else []),
    )
    return TextTable(title="Estimate", columns=columns, items=[*costs.steps, whole] if costs.steps else [])


def print_costs(console: Console, costs: Costs, price_per_hour: float | None = None) -> None:
    """Print an estimate and what it rests on, or why there is none."""
    if not costs.steps:
        hint = "; `framekiln run INPUT OUTPUT --preview 200` measures some files" if costs.unknown else ""
        print_wrapped(console, f"No estimate: {costs.why_not}{hint}.")
        return
    show_table(console, costs_table(costs, price_per_hour))
    if costs.limit:
        print_wrapped(console, f"What sets the pace: {costs.limit}.")
    if costs.unknown:
        print_wrapped(console, f"Not in it, since nothing tells of them: {', '.join(costs.unknown)}.")
    for note in costs.notes:
        print_wrapped(console, f"{note}.")


def _write(value: Interval, show: Callable[[float], str], scale: float = 1.0) -> str:
    """Return a value and, where its ends differ from it as texts, its interval."""
    central, low, high = (show(end * scale) for end in (value.central, value.low, value.high))
    return central if low == high == central else f"{central} ({low} to {high})"


def _write_size(gigabytes: float) -> str:
    return f"{number(gigabytes)} GB" if gigabytes >= 1 else f"{number(round(gigabytes * 1e3, 1))} MB"


def _write_money(amount: float) -> str:
    return "under 0.01" if 0 < amount < 0.005 else f"{amount:,.2f}"
