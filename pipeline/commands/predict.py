"""`framemill predict`: an estimate of what a run would do on other cards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from pipeline.commands.options import names
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.calibration.figures import Calibration
    from pipeline.prediction.predicting import Interval, Prediction, RunEstimate, StepEstimate
    from pipeline.prediction.source import Source

Out = Annotated[str, typer.Argument(help="Folder or URL of a run's output, measured on a GPU.")]
For = Annotated[str, typer.Option("--for", metavar="CARD,CARD", help="Cards of manifests/gpus.yaml, as rtx-5080,l4.")]
CalibrationPath = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="Of the card that the run used. [dim]Default: calibration/CARD.json.[/dim]",
    ),
]
Gpus = Annotated[
    Path | None, typer.Option("--gpus", metavar="FILE", help="Cards, as in manifests/gpus.yaml, instead of those.")
]


def predict(output: Out, for_: For, calibration: CalibrationPath = None, gpus: Gpus = None) -> None:
    """Estimate, from a run and the calibration of its card, what other cards would do: does it fit, and how fast.

    Each prediction is back-tested on what was measured; one that cannot be is not shown. Nothing here was measured on
    the other card.
    """
    from pipeline.prediction.cards import card_named, card_of, read_cards
    from pipeline.prediction.predicting import predict as predicted
    from pipeline.prediction.source import read_source

    cards = read_cards(gpus)
    wanted = names(for_)
    if not wanted:
        raise ConfigError(f"--for names no card; it knows {', '.join(sorted(cards))}.")
    targets = {name: card_named(name, cards) for name in wanted}
    source = read_source(output)
    if not source.on_card:
        raise ConfigError(
            f"The run in {output!r} was measured on a CPU, which says nothing of how much of a GPU its models would "
            "use; give the output of a run on a GPU."
        )
    known = _calibration(calibration, source)
    found = predicted(source, known, card_of(known.device, cards), targets)
    console = Console()
    _print(console, found, source)
    if random := [name for name in found.tested if known.steps[name].dummy]:
        _say(console, f"Calibrated on random weights: {', '.join(random)}.")


def _calibration(path: Path | None, source: Source) -> Calibration:
    """The file that was named, else the one of the run's card in `calibration/`."""
    from pipeline.calibration.figures import read_calibration, slug
    from pipeline.calibration.finding import FOLDER

    if path is None:
        if not source.devices:
            raise ConfigError("The run.json does not tell which GPU the run used; name a file with --calibration.")
        path = FOLDER / f"{slug(source.devices[0])}.json"
    found = read_calibration(path)
    if found.kind != "cuda":
        raise ConfigError(
            f"The calibration at '{path}' was measured on a CPU, which says nothing of how much of a GPU a model would "
            "use; calibrate on the GPU of the run."
        )
    return found


def _print(console: Console, found: Prediction, source: Source) -> None:
    _say(console, f"ESTIMATE from a run and a calibration on {found.source}; nothing was measured on the cards below.")
    _say(console, "It takes the slower of two ratios, and so may lie at its interval's lower end (docs/predicting.md).")
    for one in found.cards:
        console.print(_table(one))
        _say(console, _verdict(one, source))
        for step in one.steps:
            _say(console, f"  {step.step} rests on: {step.assumption}.")
    _say(console, f"\nBack-tests on {found.source}, by which the intervals are widened:")
    for name, tested in found.tested.items():
        _say(
            console,
            f"  {name}: a call's time at a batch and size left out, off by {tested.held_out:.0%}; its memory by "
            f"{tested.memory:.0%}; on the card beside the other steps it took {_signed(tested.mixed)} against alone",
        )
    if source.shared > 1:
        _say(
            console,
            f"  processes waited for each other on the card: their times there are divided by {source.shared:.2f}",
        )
    if found.run_error is not None:
        _say(console, f"  the run: its own rate from the calibration, off by {_signed(found.run_error)}")
    for name, why in found.not_shown.items():
        _say(console, f"Not predicted: {name}, since {why}.")
    if found.later:
        _say(console, f"Not predicted: the second pass ({', '.join(found.later)}).")


def _table(one: RunEstimate) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=f"Estimate: {one.card}")
    for head in ("step", "fits", "batch", "GB a process", "rows/s alone", "interval"):
        table.add_column(head, justify="left" if head in ("step", "fits") else "right", no_wrap=True)
    for step in one.steps:
        table.add_row(step.step, *_row(step))
    return table


def _row(step: StepEstimate) -> list[str]:
    need = f"{step.fit.need_gb + step.fit.context_gb:.2f}"
    if step.fit.batch is None or step.rate is None:
        return ["no", "-", need, "-", "-"]
    return ["yes", str(step.fit.batch), need, _short(step.rate.central), _between(step.rate)]


def _verdict(one: RunEstimate, source: Source) -> str:
    memory = ""
    if one.together is not None:
        fit = "fit" if one.together.one_pass else "do not fit"
        memory = f"All steps together {fit}: {one.together.need_gb:.1f} of {one.together.memory_gb:g} GB. "
        if len(one.together.waves) > 1:
            waves = " | ".join(", ".join(wave) for wave in one.together.waves)
            memory += f"In {len(one.together.waves)} waves, each of which decodes again: {waves}. "
    if one.rate is None:
        return f"{memory}No rate of the run: {one.why_not}."
    return (
        f"{memory}Estimate of the run: {_short(one.rate.central)} rows a second ({_between(one.rate)}), where "
        f"{one.limit} sets the pace; measured here: {_short(source.rows_per_s)}."
    )


def _between(rate: Interval) -> str:
    return f"{_short(rate.low)} to {_short(rate.high)}"


def _signed(share: float) -> str:
    """A change in percent; of what rounds to nothing no sign is known."""
    said = f"{share:+.0%}"
    return "0%" if said in ("-0%", "+0%") else said


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def _say(console: Console, words: str) -> None:
    console.print(words, highlight=False, soft_wrap=True, markup=False)
