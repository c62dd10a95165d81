"""Estimates: a run's costs on the terminal; and a run on other GPUs, there and as a page to pass on."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from framekiln.contract.words import counted
from framekiln.lab.predict.choose import GpuChoice, Prediction, StepChoice, are_idle
from framekiln.lab.predict.costs import Costs, StepCost
from framekiln.lab.predict.pace import GPU, Interval
from framekiln.reporting.kit import pages
from framekiln.reporting.kit.texts import DAY, DAYS, MISSING, Column, TextTable, duration, figure, number, words
from framekiln.reporting.terminal.console import DENSE, Terminal, print_wrapped, show_table

MEANING = (
    "bound: rows/s that no run on this GPU can exceed, by arithmetic. rows/s: an estimate with its interval "
    "(docs/hardware/predicting.md). kWh: at most, by the board's most power for the longest time, without the host."
)
GUESSED = "* estimated from other models: this step was not measured on a GPU."
_UNITS = (("days", DAY), ("h", 3600), ("min", 60), ("s", 1))  # with their seconds
_AS_FAST = 0.99  # share of the fastest: intervals are far wider than this difference
_HELPS = 1.05  # least factor of the rate for an improvement to be named
_DETAILED = 3  # GPUs with steps listed on a terminal


def ranked(found: Prediction) -> list[GpuChoice]:
    """Return the GPUs by rate, highest first; of equal ones the cheapest, then the one with the highest bound.

    If no step uses a GPU, one stands for all.
    """

    def key(one: GpuChoice) -> tuple[float, float, float]:
        cost = one.money.central if one.money else math.inf
        return -(one.rate.central if one.rate else 0.0), cost, -(one.bound or 0.0)

    return sorted(found.gpus, key=key)[: 1 if are_idle(found.gpus) else None]


def gpus_table(found: Prediction) -> TextTable:
    """Return each GPU with its rate and the collection's cost on it; with waves unless all GPUs need only one."""
    priced = bool(found.prices.per_hour) or found.prices.per_kwh is not None
    columns = [
        words("GPU", "gpu"),
        Column("GB", "memory_gb", show=figure),
        *([] if _is_in_one_wave(found) else [Column("waves", lambda one: len(one.waves) or "does not fit")]),
        Column("bound", "bound", show=figure),
        Column("rows/s", lambda one: one.rate and f"{figure(one.rate.central)} ({_round(one.rate)})"),
        words("time", lambda one: one.hours and _name_duration(one.hours), empty=MISSING),
        Column("kWh", lambda one: one.kwh and figure(one.kwh.high)),
        *([words("cost", lambda one: one.money and _round(one.money), empty="no price")] if priced else []),
    ]
    if are_idle(found.gpus):  # energy and cost are of a machine without a GPU, which nobody told
        columns = [column for column in columns if column.title in ("rows/s", "time")]
    return TextTable(title=counted(round(found.rows.central), "row"), columns=columns, items=ranked(found))


def _is_in_one_wave(found: Prediction) -> bool:
    return all(len(one.waves) == 1 for one in found.gpus)


def steps_table(choice: GpuChoice) -> TextTable:
    """Return the steps on a GPU, each alone on it."""
    columns = [
        words("step", "step"),
        Column("batch", "batch"),
        Column("GB", "gb", show=figure),
        Column("GFLOP/row", lambda step: step.flops / 1e9, show=figure),
        Column("bound", "bound", show=figure),
        words("rows/s alone", _write_rate, empty=MISSING),
    ]
    guessed = "" if all(step.measured or step.seconds is None for step in choice.steps) else GUESSED
    return TextTable(title=f"{choice.gpu}, profile {choice.profile}", columns=columns, items=choice.steps, note=guessed)


def helps(choice: GpuChoice) -> str:
    """Return possible improvements of a run, the largest factor first."""
    return ", ".join(f"{name} {factor:.2f}x" for name, factor in choice.helps.items() if factor >= _HELPS)


def limits(found: Prediction) -> str:
    """Return what sets the pace, with its GPUs."""
    gpus: dict[str, list[str]] = defaultdict(list)
    for choice in (choice for choice in ranked(found) if choice.limit):
        gpus[choice.limit].append(choice.gpu)
    if len(gpus) == 1 and len(found.gpus) > 1:
        (limit,) = gpus
        return f"{limit} on each of these" + (" GPUs, so the GPU makes no difference" if GPU not in limit else "")
    return "; ".join(f"{limit} on {', '.join(names)}" for limit, names in gpus.items())


def print_prediction(console: Terminal, found: Prediction) -> None:
    """Print the figures' gaps, the pace's limit, the GPUs, and up to three GPUs with their steps."""
    style: dict[str, Any] = {"title_justify": "center", "padding": DENSE}
    for sentence in _explain_gaps(found):
        print_wrapped(console, sentence)
    if told := limits(found):
        print_wrapped(console, f"What sets the pace: {told}.")
    show_table(console, gpus := gpus_table(found), whole=gpus.heads, **style)
    fits = " Each holds all models in one wave." if _is_in_one_wave(found) and not are_idle(found.gpus) else ""
    print_wrapped(console, f"With {number(found.cores)} cores beside each GPU (--cores).{fits}")
    if not are_idle(found.gpus):
        print_wrapped(console, MEANING)
    for choice in ranked(found) if len(found.gpus) <= _DETAILED else ():
        if choice.steps:
            show_table(console, table := steps_table(choice), whole=table.heads, **style)
            print_wrapped(console, table.note)
        if told := helps(choice):
            print_wrapped(console, f"What would help{'' if are_idle(found.gpus) else f' on {choice.gpu}'}: {told}.")


def render(found: Prediction) -> str:
    """Return the page; the same prediction gives the same page."""
    best = max((choice.rate.central for choice in found.gpus if choice.rate), default=1.0)
    estimate = Column("of the fastest", lambda one: one.rate.central / best if one.rate else 0.0, "meter", show=str)
    table = gpus_table(found)
    facts = {
        "Run": found.output,
        "Cores beside the GPU": number(found.cores),
        "Rows": number(round(found.rows.central)),
    }
    sections = [(choice, steps_table(choice), helps(choice)) for choice in ranked(found) if choice.steps]
    values = {
        "table": replace(table, columns=[*table.columns, estimate]).shown,
        "fastest": []
        if are_idle(found.gpus)
        else [one for one in ranked(found) if one.rate and one.rate.central > _AS_FAST * best],
        "facts": facts,
        "limits": limits(found),
        "meaning": MEANING,
        "sections": sections,
        "lacks": _explain_gaps(found),
    }
    return pages.render_page("predict.html", values)


def _explain_gaps(found: Prediction) -> list[str]:
    return [
        *(f"{one.gpu}: no estimate, since {one.why_not}." for one in ranked(found) if one.why_not),
        *(f"{note}." for note in found.notes),
    ]


def _write_rate(step: StepChoice) -> str | None:
    seconds, mark = step.seconds, "" if step.measured else " *"
    return f"{figure(1 / seconds.high)} to {figure(1 / seconds.low)}{mark}" if seconds else None


def _round(value: Interval, scale: float = 1.0) -> str:
    """Return the ends with two digits, the precision of an estimate."""
    return " to ".join(dict.fromkeys(figure(float(f"{end * scale:.2g}")) for end in (value.low, value.high)))


def _name_duration(hours: Interval) -> str:
    longest = hours.high * 3600
    unit, length = next((one for one in _UNITS[longest < DAYS * DAY :] if longest >= one[1]), _UNITS[-1])
    return f"{_round(hours, 3600 / length)} {unit}"


def costs_table(costs: Costs, price_per_hour: float | None = None) -> TextTable:
    """Return each step and the whole, which is less than their sum if steps run beside each other."""
    rows = costs.rows or Interval(central=0, low=0, high=0)
    whole = StepCost(step="whole", rows=rows, hours=costs.hours, gb=costs.gb)

    def show_money(amount: float) -> str:
        return "under 0.01" if 0 < amount < 0.005 else f"{amount:,.2f}"

    money = [Column("money", lambda step: step.hours and _write(step.hours, show_money, price_per_hour or 0))]
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


def print_costs(console: Terminal, costs: Costs, price_per_hour: float | None = None) -> None:
    """Print an estimate and its basis, or why there is none."""
    if not costs.steps:
        hint = "; `framekiln run INPUT OUTPUT --preview 200` measures some files" if costs.unknown else ""
        print_wrapped(console, f"No estimate: {costs.why_not}{hint}.")
        return
    for note in costs.notes:
        print_wrapped(console, f"{note}.")
    show_table(console, costs_table(costs, price_per_hour))
    if costs.limit:
        print_wrapped(console, f"What sets the pace: {costs.limit}.")
    if costs.unknown:
        print_wrapped(console, f"Not included, as nothing measured them: {', '.join(costs.unknown)}.")


def _write(value: Interval, show: Callable[[float], str], scale: float = 1.0) -> str:
    """Return a value and, if its ends differ from it as texts, its interval."""
    central, low, high = (show(end * scale) for end in (value.central, value.low, value.high))
    return central if low == high == central else f"{central} ({low} to {high})"


def _write_size(gigabytes: float) -> str:
    return f"{number(gigabytes)} GB" if gigabytes >= 1 else f"{number(round(gigabytes * 1e3, 1))} MB"
