"""`framekiln calibrate`: memory and speed of each step with a model, alone on this GPU."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Option

from framekiln.cli.console import RunConsole, interruptible
from framekiln.cli.options import Quiet, StepArguments, read_request, refuse_idle
from framekiln.contract.errors import ConfigError
from framekiln.contract.user_files import check_file, check_folder
from framekiln.media.discovery.listing import list_inputs
from framekiln.planning.gpu import calibration_file
from framekiln.planning.gpu.calibration_file import StepFigures
from framekiln.planning.machine import examine
from framekiln.planning.plan import make_plan
from framekiln.planning.processes.resources import ROOMY, gpu_names, this_machine
from framekiln.planning.sample import Sample
from framekiln.reporting.kit.texts import Column, TextTable, words
from framekiln.reporting.terminal.console import DENSE, print_line, show_table
from framekiln.reporting.terminal.tables import print_absent

if TYPE_CHECKING:
    from framekiln.lab.calibrate.bench import StepMeasurement
    from framekiln.runtime.run.request import RunRequest


Save = Annotated[Path | None, Option(metavar="DIR", help="Folder. [dim]Default: where plan and run look for it.[/dim]")]
_SHARED = "Also write the figures without anything private, for manifests/calibrations/. [dim]Without --input, "
_SHARED += "the figures in this GPU's file.[/dim]"
Share = Annotated[Path | None, Option(metavar="FILE", help=_SHARED)]
MOST_BATCH = 256
ROWS = 16  # 576 MB of 12-megapixel photos; more photos of one size would not change a rate


def calibrate(
    options: StepArguments,
    *,
    rows: Annotated[int, Option(min=1, help="Frames of the input to decode and use in all calls.")] = ROWS,
    most_batch: Annotated[int, Option(min=1, help="Largest batch to try, in rows.")] = MOST_BATCH,
    save: Save = None,
    share: Share = None,
    quiet: Quiet = False,
) -> None:
    """Measure each step alone, on rows of the input: memory and rate by batch, the largest and the fastest batch.

    Nothing else should use the machine meanwhile. The figures are stored in a file named after the device.
    """
    save, console = save or calibration_file.fits_folder(), RunConsole(quiet=quiet)
    check_folder("--save", save)
    request = read_request(options)
    if share is None:
        _measure(request, rows, most_batch, save, console)
        return
    from framekiln.lab.calibrate.sharing import share_calibration

    _check_share(request, share)
    if not request.inputs:
        refuse_idle({"--rows": rows != ROWS, "--most-batch": most_batch != MOST_BATCH}, "without --input")
    path = calibration_file.default_path(next(iter(gpu_names()), "gpu"), save)
    left = share_calibration(_measure(request, rows, most_batch, save, console) if request.inputs else path, share)
    apart = f" Left out, since they are your own steps or have random weights: {', '.join(left)}." if left else ""
    print_line(console, f"To share: {share}.{apart}")


def _check_share(request: "RunRequest", share: Path) -> None:
    check_file("--share", share)
    if request.options.device == "cpu" or not gpu_names():
        problem = "--share needs figures of a GPU, and no GPU was used; leave it out, or calibrate on a GPU."
        raise ConfigError(problem, code="FK-CALIBRATION-OF-CPU")


def _measure(request: "RunRequest", rows: int, most_batch: int, save: Path, console: RunConsole) -> Path:
    from framekiln.cli.bench.measure import print_findings
    from framekiln.lab.calibrate.calibrate import calibrate, measurable
    from framekiln.lab.findings import load
    from framekiln.lab.measure.device_facts import load_of_others
    from framekiln.lab.sweep.batch_search import Limits

    request.require("input")
    here = [this_machine()]
    plan = make_plan(request.pipeline, request.profile, request.options, here, calibrated=False)
    refusal, notes = examine(plan, request.options, [ROOMY], here=True)
    if refusal is not None:
        raise refusal
    steps, media = measurable(plan, request.options.stages), list_inputs(request.inputs)
    for note in notes:
        print_line(console, note)
    print_absent(console, plan)
    print_findings(load(load_of_others(steps[0].placement.device)))
    watch = partial(print_line, console), partial(_show, console, save)
    with interruptible(f"Interrupted. Steps measured so far are kept in {save}."):
        result = calibrate(plan, media, steps, Limits(most_batch=most_batch), rows, *watch)
    path = calibration_file.write_calibration(result, save)
    size = result.gpu_vram_gb
    memory = f", {size:.1f} GB, each process takes {result.context_gb:.2f} GB of it" if size else ""
    print_line(console, f"{result.device}{memory}. Calibration: {path}")
    return path


def _show(
    console: Console, folder: Path, result: "StepMeasurement", so_far: calibration_file.Calibration | None
) -> None:
    if so_far is not None:  # stored after each step, since the next one may take an hour
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
    Column("rows/s", "rows_per_s"),
    Column("ms a call", lambda trial: 1000 * trial.seconds),
    Column("peak GB", "peak_gb", show="{:.3f}".format, optional=True),
    Column("reserved", "reserved_gb", show="{:.3f}".format, optional=True),
    words("inside", _name_phases),
)


def _summarize(figures: StepFigures) -> list[str]:
    limit = "a larger one did not run" if figures.largest_is_limit else "the largest that was tried"
    # weights that torch does not see belong to another runtime
    weights = f"weights {figures.weights_gb:.3f} GB" if figures.weights_gb else "weights not seen"
    weights += " (random)" if figures.dummy else ""
    cost = f", {figures.flops_per_row / 1e9:,.2f} GFLOP a row" if figures.flops_per_row else ", FLOPs not counted"
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
    return lines + [f"These rows have no {kind}, so no figure contains their cost." for kind in figures.unseen]
