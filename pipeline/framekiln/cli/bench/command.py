"""`framekiln bench`: what a model costs, by layer, precision and batch."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from typer import Argument, Option

from framekiln.api.bench_options import BenchOptions, CellOptions, FileOptions
from framekiln.api.options import defaults, split_names
from framekiln.cli.bench.options import ClipOptions, NsightOptions, SavOptions, check_options, list_given
from framekiln.cli.options import Quiet, refuse_idle
from framekiln.contract.errors import ConfigError
from framekiln.reporting.terminal.console import print_line

if TYPE_CHECKING:
    from framekiln.api.bench import BenchFiles

_CHATTY = ("torchao", "torch.utils._pytree")
"""Loggers that warn at each import of torchao; transformers imports it if it is installed."""
_UNMEASURED = ("out", "save", "against", "fail_if", "target")
"""Options that need the figures of an earlier bench."""

Models = Annotated[
    str | None,
    Argument(
        metavar="MODEL[,MODEL]",
        help="A model (--list names them), a step of the pipeline, or package.module:factory of your own.",
    ),
]


def bench(
    model: Models = None,
    *,
    options: CellOptions,
    videos: SavOptions,
    clips: ClipOptions,
    nsight: NsightOptions,
    files: FileOptions,
    list_: Annotated[bool, Option("--list", help="List the models by name and exit.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure models alone: time, memory, layers and precision, for each requested batch and size.

    Nothing else should use the machine meanwhile. Weights are random where the published ones are missing.
    Exits with 1 if --fail-if is met or --target is not, and with 2 if a cell of the base could not be measured.
    """
    console = Console(quiet=quiet)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
    from framekiln.api.bench import BenchFiles
    from framekiln.cli.bench.films import bench_clips, bench_videos
    from framekiln.cli.bench.nsight import bench_nsight

    if list_ or model is None:
        where = "with --list" if list_ else "without MODEL"
        _check_alone({**options, **files}, (videos, clips, nsight), where)
        _print_models(console, options["pipeline"])
        return
    if not split_names(model):
        raise ConfigError("MODEL is empty; `framekiln bench --list` names models.", code="FK-BENCH-MODEL")
    check_options(options, videos, clips, nsight, files)
    kept = BenchFiles.of({**files, "out": files["out"] or "bench"}).check()
    if videos.is_asked:
        bench_videos(console, split_names(model), options, videos, kept)
    elif clips.clip:
        bench_clips(console, split_names(model), options, clips, kept)
    elif nsight.is_asked:
        bench_nsight(console, split_names(model), options, nsight, kept.out or Path())
    else:
        _measure_or_compare(console, model, options, files, kept)


def _check_alone(options: Mapping[str, Any], groups: Sequence[object], where: str) -> None:
    """Reject options that a list of models ignores. Raises ConfigError."""
    given = list_given(options, defaults(BenchOptions), ("pipeline",))
    refuse_idle([*given, *(name for one in groups for name in list_given(vars(one), vars(type(one)())))], where)


def _measure_or_compare(
    console: Console, model: str, cells: CellOptions, files: FileOptions, kept: "BenchFiles"
) -> None:
    from framekiln.api.bench import concluded, earlier_figures
    from framekiln.cli.bench.measure import finish, measure
    from framekiln.lab.output.results import read_report

    if (earlier := earlier_figures(model, cells["pipeline"])) is None:
        measure(console, model, cells, kept)
        return
    unread = [*list_given(cells, defaults(CellOptions)), *list_given(files, defaults(FileOptions), _UNMEASURED)]
    refuse_idle(unread, "with figures of an earlier bench")
    finish(console, concluded(read_report(earlier), kept, kept.base(), is_new=False), is_new=False)


def _print_models(console: Console, pipeline: Any) -> None:
    from framekiln.lab.models.registry import known_models
    from framekiln.planning.manifest import ProfileFile, read_pipeline
    from framekiln.planning.stage_building import build_all

    print_line(console, f"Models: {', '.join(known_models())}")
    stages = build_all(read_pipeline(pipeline), ProfileFile(), {})
    print_line(console, f"Steps: {', '.join(name for name, stage in stages.items() if stage.scope.first_pass)}")
