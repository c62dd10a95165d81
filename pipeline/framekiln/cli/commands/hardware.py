"""`framekiln calibrate` and `predict`: each step alone on this GPU, and an estimate of a run on other GPUs."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Argument, Option

from framekiln.api.writable import check_folder
from framekiln.cli.console import RunConsole, interruptible
from framekiln.cli.options import Quiet, StepArguments, names, read_request
from framekiln.contract.errors import ConfigError
from framekiln.device.cores import usable_cores
from framekiln.planning.gpu import calibration_file
from framekiln.planning.gpu.calibration_file import StepFigures
from framekiln.planning.plan import make_plan
from framekiln.planning.processes.resources import this_machine
from framekiln.planning.sample import Sample
from framekiln.reporting.kit.texts import Column, TextTable, figure, words
from framekiln.reporting.terminal.console import DENSE, print_line, print_table, show_table
from framekiln.reporting.terminal.tables import print_absent

if TYPE_CHECKING:
    from framekiln.lab.calibrate.bench import StepMeasurement
    from framekiln.lab.predict.predict import Interval, Prediction, RunEstimate, StepEstimate
    from framekiln.lab.predict.source_run import SourceRun


_BUSY = 0.5  # load for each core above which other work disturbs the figures
_HEADS = ("step", "fits", "batch", "GB a process", "rows/s alone", "interval")
ROWS = 16  # 576 MB of 12-megapixel photos; more of one size take the same time each, so they change no rate


def calibrate(
    options: StepArguments,
    *,
    rows: Annotated[int, Option(min=1, help="Frames of the input to decode and use in all calls.")] = ROWS,
    most_batch: Annotated[int, Option(min=1, help="Largest batch to try, in rows.")] = 256,
    save: Annotated[
        Path | None,
        Option(metavar="DIR", help="Folder for the file. [dim]Default: where plan, run and predict look for it.[/dim]"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure each step alone, on rows of the input: memory and rate by batch, the largest and the fastest batch.

    Nothing else should use the machine meanwhile. The figures are stored in a file named after the device.
    """
    from framekiln.lab.calibrate.calibrate import calibrate as measured
    from framekiln.lab.calibrate.calibrate import measurable
    from framekiln.lab.sweep.batch_search import Limits

    save = save or calibration_file.fits_folder()
    check_folder("--save", save)
    request = read_request(options)
    request.require("input")
    here = [this_machine()]
    plan = make_plan(request.pipeline, request.profile, request.options, here, check_fit=False, calibrated=False)
    steps = measurable(plan, request.options.stages)
    console = RunConsole(quiet=quiet)
    print_absent(console, plan)
    load, cores = os.getloadavg()[0], usable_cores()
    if load > _BUSY * cores:
        note = f"Other work runs on this machine (load {load:.1f}, cores {cores}): rates will be too low and uneven."
        print_line(console, note)

    watch = partial(print_line, console), partial(_show, console, save)
    with interruptible(f"Interrupted. Steps that were measured so far are kept in {save}."):
        result = measured(plan, request.inputs, steps, Limits(most_batch=most_batch), rows, *watch)
    path = calibration_file.write_calibration(result, save)
    size = result.gpu_vram_gb
    memory = f", {size:.1f} GB, each process takes {result.context_gb:.2f} GB of it" if size else ""
    print_line(console, f"{result.device}{memory}. Calibration: {path}")


def _show(console: Console, folder: Path, result: StepMeasurement, so_far: calibration_file.Calibration | None) -> None:
    if so_far is not None:  # stored step by step, since the next step may take an hour
        calibration_file.write_calibration(so_far, folder)
    if result.figures is not None:
        trials = TextTable(title="Trials", columns=_TRIALS, items=result.figures.trials)
        show_table(console, trials, title=False, whole=trials.right, padding=DENSE)
        for line in _summarize(result.figures):
            print_line(console, line)
    for note in result.notes:
        start = "No figures: " if result.figures is None else ""
        print_line(console, f"{start}{note[:1].upper()}{note[1:].rstrip('.')}.")


def _name_phases(trial: Sample) -> str:
    whole = sum(trial.phases.values()) or 1.0
    parts = [f"{name} {taken / whole:.0%}" for name, taken in trial.phases.items() if taken > whole / 100]
    return ", ".join([*parts, *(f"{number:.1f} {kind} a row" for kind, number in trial.items.items())])


_TRIALS = (
    Column("batch", "batch"),
    Column("MP", "megapixels", show="{:.2f}".format),
    Column("rows/s", "rows_per_s", show="{:,.2f}".format),
    Column("ms a call", lambda trial: 1000 * trial.seconds, show="{:,.1f}".format),
    Column("peak GB", "peak_gb", show="{:.3f}".format, optional=True),
    Column("reserved", "reserved_gb", show="{:.3f}".format, optional=True),
    words("inside", _name_phases),
)


def _summarize(figures: StepFigures) -> list[str]:
    limit = "a larger one did not run" if figures.largest_is_limit else "the largest that was tried"
    # weights that are not seen are in a runtime of their own
    weights = f"weights {figures.weights_gb:.3f} GB" if figures.weights_gb else "weights not seen"
    weights += " (random)" if figures.dummy else ""
    cost = f", {figures.flops_per_row / 1e9:,.2f} GFLOP a row" if figures.flops_per_row else ", FLOPs not seen"
    lines = [
        f"Set-up {figures.set_up_s:.1f} s, {weights}{cost}.",
        f"Fastest batch {figures.fastest_batch}: the smallest within 3 % of the best rate. "
        f"Largest {figures.largest_batch}: {limit}.",
    ]
    if figures.memory is not None:
        line = figures.memory
        grows = [(line.per_row_gb, "batch"), (line.per_megapixel_gb, "batch x MP")]
        parts = [f"{line.base_gb:.3f} GB", *(f"{value:.4g} x {name}" for value, name in grows if value)]
        lines.append(f"Peak memory: {' + '.join(parts)}, at most {line.error_gb:.3f} GB off.")
    return lines + [f"There were no {kind} in these rows: what they cost is in no figure." for kind in figures.unseen]


def predict(
    output: Annotated[str, Argument(help="Folder or URL of a run's output, measured on a GPU.")],
    for_: Annotated[str, Option("--for", metavar="GPU,GPU", help="GPUs of manifests/gpus.yaml, such as rtx-5080,l4.")],
    calibration: Annotated[
        Path | None,
        Option(metavar="FILE", help="File of the GPU that the run used. [dim]Default: that of this machine.[/dim]"),
    ] = None,
    gpus: Annotated[Path | None, Option(metavar="FILE", help="A file of GPUs instead of manifests/gpus.yaml.")] = None,
) -> None:
    """Estimate from a run and the calibration of its GPU whether other GPUs hold its models, and how fast they are.

    Each prediction is back-tested on measured figures; one that cannot be tested is not shown. Nothing is measured on
    the other GPU.
    """
    from framekiln.lab.predict.gpu_specs import gpu_by_driver_name, gpu_by_name, read_gpus
    from framekiln.lab.predict.predict import predict as predicted
    from framekiln.lab.predict.source_run import read_source

    known_gpus = read_gpus(gpus)
    wanted = names(for_)
    if not wanted:
        raise ConfigError(f"--for names no GPU; known: {', '.join(sorted(known_gpus))}.", code="FK-UNKNOWN-GPU")
    targets = {name: gpu_by_name(name, known_gpus) for name in wanted}
    source = read_source(output)
    if not source.gpu_steps:
        raise ConfigError(
            f"The run in {output!r} was measured on a CPU, so nothing is known of its models on a GPU; give the output "
            "of a run on a GPU.",
            code="FK-RUN-ON-CPU",
        )
    if calibration is None and not source.devices:
        problem = "The run.json does not name the GPU of the run; name a file with --calibration."
        raise ConfigError(problem, code="FK-RUN-GPU-UNKNOWN")
    known = calibration_file.read_gpu_calibration(calibration or calibration_file.default_path(source.devices[0]))
    prediction = predicted(source, known, gpu_by_driver_name(known.device, known_gpus), targets)
    console = Console()
    _print(console, prediction, source)
    if random := [name for name in prediction.tested if known.steps[name].dummy]:
        print_line(console, f"Calibrated on random weights: {', '.join(random)}.")


def _print(console: Console, prediction: Prediction, source: SourceRun) -> None:
    say = partial(print_line, console)
    say(f"ESTIMATE from a run and a calibration on {prediction.source}; nothing below was measured.")
    say("It takes the slower of two ratios, and so may lie at its interval's lower end (docs/hardware/predicting.md).")
    for estimate in prediction.gpus:
        rows = [_make_row(step) for step in estimate.steps]
        style = {"title": f"Estimate: {estimate.gpu}", "title_justify": "center", "padding": DENSE}
        print_table(console, _HEADS, rows, right=_HEADS[2:], whole=_HEADS, **style)
        say(_describe_run(estimate, source))
        for step in estimate.steps:
            say(f"  {step.step} rests on: {step.assumption}.")
    say(f"\nBack-tests on {prediction.source}, by which the intervals are widened:")
    for name, tested in prediction.tested.items():
        say(
            f"  {name}: a call's time at a batch and size left out, off by {tested.held_out:.0%}; its memory by "
            f"{tested.memory:.0%}; on the GPU beside the other steps it took "
            f"{_write_change(tested.mixed)} against alone"
        )
    if source.shared > 1:
        say(f"  processes waited for each other on the GPU: their times there are divided by {source.shared:.2f}")
    if prediction.run_error is not None:
        say(f"  the run: its own rate from the calibration, off by {_write_change(prediction.run_error)}")
    for name, why in prediction.not_shown.items():
        say(f"Not predicted: {name}, since {why}.")
    if prediction.later:
        say(f"Not predicted: the second pass ({', '.join(prediction.later)}).")


def _make_row(step: StepEstimate) -> list[str]:
    need = f"{step.fit.need_gb + step.fit.context_gb:.2f}"
    if step.fit.batch is None or step.rate is None:
        return [step.step, "no", "-", need, "-", "-"]
    return [step.step, "yes", str(step.fit.batch), need, figure(step.rate.central), _write_range(step.rate)]


def _describe_run(estimate: RunEstimate, source: SourceRun) -> str:
    memory, together = "", estimate.combined
    if together is not None:
        fit = "fit" if together.one_pass else "do not fit"
        memory = f"All steps together {fit}: {together.need_gb:.1f} of {together.memory_gb:g} GB. "
        if len(together.waves) > 1:
            waves = " | ".join(", ".join(wave) for wave in together.waves)
            memory += f"In {len(together.waves)} waves, and each decodes again: {waves}. "
    if estimate.rate is None:
        return f"{memory}No rate of the run: {estimate.why_not}."
    rate, here = f"{figure(estimate.rate.central)} rows a second ({_write_range(estimate.rate)})", source.rows_per_s
    return f"{memory}Estimate of the run: {rate}, where {estimate.limit} sets the pace; measured here: {figure(here)}."


def _write_range(rate: Interval) -> str:
    return f"{figure(rate.low)} to {figure(rate.high)}"


def _write_change(share: float) -> str:
    """Return a change in percent, without a sign if it rounds to 0."""
    text = f"{share:+.0%}"
    return "0%" if text in ("-0%", "+0%") else text
