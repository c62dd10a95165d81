"""`framekiln bench`: what a model costs, by layer, precision and batch."""

from __future__ import annotations

import logging
from typing import Annotated

from rich.console import Console
from typer import Argument, Option

from framekiln.cli.bench.checks import UNMEASURED, check_options, check_unread, given
from framekiln.cli.bench.clips import ClipOptions, bench_clips
from framekiln.cli.bench.files import FileArguments, finish
from framekiln.cli.bench.nsight import NsightOptions, bench_nsight
from framekiln.cli.bench.options import CellArguments
from framekiln.cli.bench.videos import SavOptions, bench_videos
from framekiln.cli.options import Quiet, names, spread
from framekiln.contract.errors import ConfigError
from framekiln.reporting.terminal.console import print_line

_CHATTY = ("torchao", "torch.utils._pytree")
"""Loggers that warn whenever torchao is imported, which transformers does where it is installed."""

Models = Annotated[
    str | None,
    Argument(
        metavar="MODEL[,MODEL]",
        help="A model (--list names them), a step of the pipeline, or package.module:factory of your own.",
    ),
]


@spread
def bench(
    model: Models = None,
    *,
    options: CellArguments,
    videos: SavOptions,
    clips: ClipOptions,
    nsight: NsightOptions,
    files: FileArguments,
    list_: Annotated[bool, Option("--list", help="List the models by name and exit.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure models alone: time, memory, layers and precision, for each batch and size that is asked for.

    Nothing else should use the machine meanwhile. Weights are random where the published ones are missing.
    Exits with 1 if a condition of --fail-if is met, or a limit of --target is not.
    """
    console = Console(quiet=quiet)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
    if list_ or model is None:
        _print_models(console, options.pipeline)
        return
    if not names(model):
        raise ConfigError("MODEL is empty; `framekiln bench --list` names models.", code="FK-BENCH-MODEL")
    check_options(options, videos, clips, nsight, files)
    if videos.is_asked:
        bench_videos(console, names(model), options, videos, files)
    elif clips.clip:
        bench_clips(console, names(model), options, clips, files)
    elif nsight.is_asked:
        bench_nsight(console, names(model), options, nsight, files.out)
    else:
        _measure_or_compare(console, model, options, files)


def _measure_or_compare(console: Console, model: str, options: CellArguments, files: FileArguments) -> None:
    """Measure models, or read figures measured before, and compare them with a base."""
    from framekiln.api.bench import earlier_figures
    from framekiln.cli.bench.measure import measure
    from framekiln.lab.output.results import read_report

    base = files.base()
    earlier = earlier_figures(model, options.pipeline)
    if earlier is not None:
        check_unread([*given(options), *given(files, UNMEASURED)], "with figures measured before")
    report = read_report(earlier) if earlier else measure(console, names(model), options, files)
    finish(console, report, files, base, is_new=earlier is None)


def _print_models(console: Console, pipeline: str | None) -> None:
    from framekiln.lab.models.registry import first_pass_steps, known_models
    from framekiln.planning.manifest import read_pipeline

    print_line(console, f"Models: {', '.join(known_models())}")
    print_line(console, f"Steps: {', '.join(first_pass_steps(read_pipeline(pipeline)))}")
