"""`framekiln predict`: a run on other GPUs, from a run on any machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Argument

from framekiln.api.options import PredictOptions
from framekiln.cli.options import Json
from framekiln.reporting.kit.texts import MISSING, duration, figure, number
from framekiln.reporting.terminal.console import DENSE, print_line, print_table, print_wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framekiln.lab.predict.choose import GpuChoice
    from framekiln.lab.predict.pace import Interval


_HEADS = ("GPU", "waves", "bound", "rows/s", "time", "kWh", "cost")
_WHOLE = ("GPU", "bound", "kWh")  # columns that are never wrapped
_STEP_HEADS = ("step", "batch", "GB", "GFLOP/row", "bound", "rows/s alone")
NO_PRICE = "no price"
_DETAILED = 3  # GPUs whose steps are listed


def predict(
    output: Annotated[str, Argument(help="Folder or URL of a run's output, on a CPU or a GPU.")],
    options: PredictOptions,
    json_: Json = False,
) -> None:
    """Tell for each GPU whether it holds a run, a bound of its rate that no run can exceed, and an estimate with costs.

    The host's part is measured by the run. The GPU's part is counted, and nothing is measured on that GPU.
    """
    from framekiln.api.predict import choose

    choices, rows, notes = choose(output, options, (lambda _: None) if json_ else partial(print_line, Console()))
    if json_:
        gpus_ = [asdict(choice) for choice in choices]
        print(json.dumps({"rows": asdict(rows), "gpus": gpus_, "notes": notes}, indent=2))
    else:
        _print(Console(), choices, rows, notes, NO_PRICE if options["prices"] else MISSING)


def _print(console: Console, choices: Sequence[GpuChoice], rows: Interval, notes: Sequence[str], unpriced: str) -> None:
    choices = sorted(choices, key=_rank)
    title = f"{number(round(rows.central))} rows"
    style = {"title": title, "title_justify": "center", "padding": DENSE}
    cells = [_make_row(choice, unpriced) for choice in choices]
    print_table(console, _HEADS, cells, right=_HEADS[1:4], whole=_WHOLE, **style)
    limits: dict[str, list[str]] = {}
    for choice in choices:
        if choice.limit:
            limits.setdefault(choice.limit, []).append(choice.gpu)
    if limits:
        told = "; ".join(f"{limit} ({', '.join(gpus)})" for limit, gpus in limits.items())
        print_wrapped(console, f"What sets the pace: {told}.")
    print_wrapped(
        console,
        "bound: rows/s that no run on this GPU can exceed, by arithmetic. rows/s: an estimate with its interval "
        "(docs/hardware/predicting.md). kWh: at the board's most power, without the host.",
    )
    for choice in choices if len(choices) <= _DETAILED else ():
        _print_steps(console, choice)
    for choice in choices:
        if choice.why_not:
            print_wrapped(console, f"{choice.gpu}: no estimate, since {choice.why_not}.")
    for note in notes:
        print_wrapped(console, f"{note}.")


def _rank(choice: GpuChoice) -> tuple[float, float]:
    """Return what puts the highest rate first; of equal ones that of the GPU with the highest bound."""
    return -choice.rate.central if choice.rate is not None else 0.0, -(choice.bound or 0.0)


def _make_row(choice: GpuChoice, unpriced: str) -> list[str]:
    waves = str(len(choice.waves)) if choice.waves else "does not fit"
    if choice.rate is None or choice.hours is None or choice.kwh is None:
        return [choice.gpu, waves, figure(choice.bound), *[MISSING] * 4]
    times = (duration(hours * 3600) for hours in (choice.hours.low, choice.hours.high))
    return [
        choice.gpu,
        waves,
        figure(choice.bound),
        f"{figure(choice.rate.central)} ({figure(choice.rate.low)} to {figure(choice.rate.high)})",
        " to ".join(dict.fromkeys(times)),
        figure(choice.kwh.high),
        unpriced if choice.money is None else f"{figure(choice.money.low)} to {figure(choice.money.high)}",
    ]


def _print_steps(console: Console, choice: GpuChoice) -> None:
    if not choice.steps:
        return
    rows = [
        [
            step.step,
            str(step.batch),
            figure(step.gb),
            figure(step.flops / 1e9),
            figure(step.bound),
            f"{figure(1 / step.seconds.high)} to {figure(1 / step.seconds.low)}{'' if step.measured else ' *'}",
        ]
        for step in choice.steps
    ]
    style = {"title": f"{choice.gpu}, profile {choice.profile}", "title_justify": "center", "padding": DENSE}
    print_table(console, _STEP_HEADS, rows, right=_STEP_HEADS[1:5], whole=_STEP_HEADS, **style)
    if not all(step.measured for step in choice.steps):
        print_wrapped(console, "* by what other models reach: no GPU has measured this step.")
    if choice.helps:
        helps = ", ".join(f"{name} {factor:.2f}x" for name, factor in choice.helps.items())
        print_wrapped(console, f"What would help: {helps}.")
