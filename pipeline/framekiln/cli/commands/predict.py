"""`framekiln predict`: an estimate of a run on other GPUs."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Argument, Option

from framekiln.cli.options import names
from framekiln.contract.errors import ConfigError
from framekiln.planning.gpu import calibration_file
from framekiln.reporting.kit.texts import figure
from framekiln.reporting.terminal.console import DENSE, print_line, print_table

if TYPE_CHECKING:
    from framekiln.lab.predict.predict import Interval, Prediction, RunEstimate, StepEstimate
    from framekiln.lab.predict.source_run import SourceRun


_HEADS = ("step", "fits", "batch", "GB a process", "rows/s alone", "interval")


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


def _print(console: Console, prediction: "Prediction", source: "SourceRun") -> None:
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


def _make_row(step: "StepEstimate") -> list[str]:
    need = f"{step.fit.need_gb + step.fit.context_gb:.2f}"
    if step.fit.batch is None or step.rate is None:
        return [step.step, "no", "-", need, "-", "-"]
    return [step.step, "yes", str(step.fit.batch), need, figure(step.rate.central), _write_range(step.rate)]


def _describe_run(estimate: "RunEstimate", source: "SourceRun") -> str:
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


def _write_range(rate: "Interval") -> str:
    return f"{figure(rate.low)} to {figure(rate.high)}"


def _write_change(share: float) -> str:
    """Return a change in percent, without a sign if it rounds to 0."""
    text = f"{share:+.0%}"
    return "0%" if text in ("-0%", "+0%") else text
