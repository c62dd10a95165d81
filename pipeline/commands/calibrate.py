"""`framemill calibrate`: what each step with a model takes of this card, and how fast it is there alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipeline.commands.executing import ERRORS
from pipeline.commands.options import INTERRUPTED, Quiet
from pipeline.commands.places import check_folder
from pipeline.commands.taking import taking
from pipeline.commands.wish import Chosen
from pipeline.machines import this_machine
from pipeline.plan import make_plan
from pipeline.telemetry.printing import print_absent

if TYPE_CHECKING:
    from pipeline.calibration.figures import Calibration, Line, StepFigures, Trial
    from pipeline.calibration.measuring import Measured
    from pipeline.calibration.rows import Sample
    from pipeline.step import Step

Rows = Annotated[int, typer.Option("--rows", min=1, help="Frames of the input that are decoded, and used again.")]
MostBatch = Annotated[int, typer.Option("--most-batch", min=1, help="Rows of a call beyond which none is tried.")]
Save = Annotated[Path, typer.Option("--save", metavar="DIR", help="Folder for the file, named after the device.")]

_BUSY = 0.5  # load for each core from which others are in the way
ROWS = 16  # 576 MB of 12-megapixel photos; more pictures change no rate, since those of one size take as long


@taking
def calibrate(
    chosen: Chosen,
    rows: Rows = ROWS,
    most_batch: MostBatch = 256,
    save: Save = Path("calibration"),
    quiet: Quiet = False,
) -> None:
    """Measure each step alone, on rows of the input: memory and rate by batch, the largest and the fastest batch.

    Nothing else should use the machine meanwhile. What is found is kept in calibration/DEVICE.json.
    """
    from pipeline.calibration.calibrating import calibrate as measured
    from pipeline.calibration.calibrating import measurable
    from pipeline.calibration.figures import write_calibration
    from pipeline.calibration.search import Limits

    check_folder("--save", save)
    source = chosen.source
    plan = make_plan(*chosen.files, chosen.choices, [this_machine()], check_fit=False, calibrated=False)
    steps = measurable(plan, chosen.choices.stages)
    console = Console(quiet=quiet)
    print_absent(console, plan)
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > _BUSY * cores:
        _say(
            console,
            f"Other work runs on this machine (load {load:.1f}, cores {cores}): rates will be too low and uneven.",
        )
    try:
        found = measured(plan, source, steps, Limits(most_batch=most_batch), rows, _Printing(console, save))
    except KeyboardInterrupt:  # Typer would end in silence
        ERRORS.print(f"Interrupted. Steps that were measured by then are kept in {escape(str(save))}.")
        raise typer.Exit(INTERRUPTED) from None
    path = write_calibration(found, save)
    memory = f", {found.vram_gb:.1f} GB, of which a process takes {found.context_gb:.2f} GB" if found.vram_gb else ""
    _say(console, f"{found.device}{memory}. Calibration: {path}")


class _Printing:
    """What was found is printed as it is found, and kept: the next step may take an hour."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._console, self._folder = console, folder

    def on_producer(self, step: Step) -> None:
        """A step makes columns for others."""
        _say(self._console, f"{step.name} goes over the rows, since others read what it makes.")

    def on_rows(self, found: Sample) -> None:
        """The rows are there."""
        sizes = ", ".join(f"{_megapixels(table):.2f} MP" for table in found.sizes())
        said = f"{found.decode_rows_per_s:.1f} rows a second in one process"
        _say(self._console, f"Rows of {sizes}; decoding and steps without a model: {said}.")
        for name, why in found.failed.items():
            _say(self._console, f"{name} failed on some of them, which its readers then see without its columns: {why}")

    def on_step(self, step: Step) -> None:
        """A step has its turn."""
        place = step.placement
        _say(self._console, f"\n{step.name}: {place.precision}{', compiled' if place.compile else ''}, {place.device}")

    def on_measured(self, found: Measured, so_far: Calibration | None) -> None:
        """It is through."""
        from pipeline.calibration.figures import write_calibration

        if so_far is not None:
            write_calibration(so_far, self._folder)
        if found.figures is not None:
            self._console.print(_table(found.figures))
            for line in _summary(found.figures):
                _say(self._console, line)
        for note in found.notes:
            _say(self._console, f"{'No figures: ' if found.figures is None else ''}{_sentence(note)}")


def _table(found: StepFigures) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    memory = found.memory is not None
    heads = ("batch", "MP", "rows/s", "ms a call", *(("peak GB", "reserved") if memory else ()))
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("inside", overflow="fold")
    for trial in found.trials:
        seconds = trial.batch / trial.rows_per_s
        numbers = [f"{trial.batch}", f"{trial.megapixels:.2f}", f"{trial.rows_per_s:,.2f}", f"{1000 * seconds:,.1f}"]
        peaks = [f"{value or 0:.3f}" for value in (trial.peak_gb, trial.reserved_gb)]
        table.add_row(*numbers, *(peaks if memory else ()), _inside(trial))
    return table


def _inside(trial: Trial) -> str:
    """Shares of the phases, and how many items a row has."""
    whole = sum(trial.phases.values()) or 1.0
    parts = [f"{name} {taken / whole:.0%}" for name, taken in trial.phases.items() if taken > whole / 100]
    return ", ".join([*parts, *(f"{number:.1f} {kind} a row" for kind, number in trial.items.items())])


def _summary(found: StepFigures) -> list[str]:
    limit = "a larger one did not run" if found.largest_is_limit else "the largest that was tried"
    seen = f"weights {found.weights_gb:.3f} GB" if found.weights_gb else "weights not seen"  # of a runtime of its own
    weights = seen + (" (random)" if found.dummy else "")
    cost = f", {found.flops_per_row / 1e9:,.2f} GFLOP a row" if found.flops_per_row else ", FLOPs not seen"
    lines = [
        f"Set-up {found.set_up_s:.1f} s, {weights}{cost}.",
        f"Fastest batch {found.fastest_batch}: the smallest within 3 % of the best rate. "
        f"Largest {found.largest_batch}: {limit}.",
    ]
    if found.memory is not None:
        lines.append(f"Peak memory: {_formula(found.memory)}, at most {found.memory.error_gb:.3f} GB off.")
    return lines + [f"There were no {kind} in these rows: what they cost is in no figure." for kind in found.unseen]


def _formula(line: Line) -> str:
    parts = [(line.per_row_gb, "batch"), (line.per_megapixel_gb, "batch x MP")]
    return " + ".join([f"{line.base_gb:.3f} GB", *(f"{value:.4g} x {name}" for value, name in parts if value)])


def _megapixels(table: object) -> float:
    from pipeline.recorder import pixels

    return float(pixels(table).mean()) / 1e6


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."


def _say(console: Console, words: str) -> None:
    console.print(words, highlight=False, soft_wrap=True, markup=False)
