"""`framemill bench`: what a model costs, by layer, precision and batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Argument, Exit, Option

from pipeline.cli.bench.clips import ClipOptions, bench_clips
from pipeline.cli.bench.files import BenchFiles
from pipeline.cli.bench.measure import measured
from pipeline.cli.bench.nsight import NsightOptions, bench_nsight
from pipeline.cli.bench.options import BenchOptions
from pipeline.cli.bench.videos import SavOptions, bench_videos
from pipeline.cli.console import ERRORS
from pipeline.cli.options import Quiet, names, spread
from pipeline.contract.errors import ConfigError
from pipeline.reporting.terminal.console import print_line

if TYPE_CHECKING:
    from pipeline.bench.output.results import BenchReport
    from pipeline.reporting.bench.regression import Change
    from pipeline.reporting.compare.gate import Finding

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
    options: BenchOptions,
    videos: SavOptions,
    clips: ClipOptions,
    nsight: NsightOptions,
    files: BenchFiles,
    list_: Annotated[bool, Option("--list", help="List the models by name and exit.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure models alone: time, memory, layers and precision, for each batch and size that is asked for.

    Nothing else should use the machine meanwhile. Weights are random where the published ones are missing.
    Exits with 1 if a condition of --fail-if is met.
    """
    console = Console(quiet=quiet)
    _check_options(videos, clips, nsight, files)
    if list_ or model is None:
        _print_models(console)
    elif videos.is_asked:
        bench_videos(console, names(model), options, videos, files.out)
    elif clips.clip:
        bench_clips(console, names(model), options, clips, files.out)
    elif nsight.is_asked:
        bench_nsight(console, names(model), options, nsight, files.out)
    else:
        _measure_or_compare(console, model, options, files)


def _check_options(videos: SavOptions, clips: ClipOptions, nsight: NsightOptions, files: BenchFiles) -> None:
    """Check that nothing that was asked for is left out in silence.

    Raises:
        ConfigError: two measurements at once, a comparison of one that has no cells, or targets without a clip.
    """
    asked = [
        *["--sav"] * (videos.sav is not None),
        *["--test"] * videos.test,
        *["--clip"] * bool(clips.clip),
        *["--nsys, --ncu and --dry-run"] * nsight.is_asked,
    ]
    if clips.target and not clips.clip:
        raise ConfigError("--target is for the frames of --clip; add --clip 1080p.", code="FM-BENCH-OPTION")
    if len(asked) > 1:
        raise ConfigError(f"{asked[0]} and {asked[1]} are measured one at a time.", code="FM-BENCH-OPTION")
    if asked and (used := files.of_cells):
        raise ConfigError(f"{asked[0]} measures no cells, which {used[0]} needs; leave it out.", code="FM-BENCH-OPTION")


def _measure_or_compare(console: Console, model: str, options: BenchOptions, files: BenchFiles) -> None:
    """Measure models, or read figures measured before, and compare them with a base."""
    from pipeline.bench.output.results import read_report
    from pipeline.reporting.bench.regression import changes, judge

    base = read_report(files.base()) if files.against or files.fail_if else None
    earlier = Path(model) if model.endswith(".json") or Path(model).is_dir() else None
    report = read_report(earlier) if earlier else measured(console, names(model), options, files.out)
    found = changes(base, report) if base else []
    verdicts = judge(files.fail_if, found) if files.fail_if else []
    _print_findings(console, report)
    for verdict in verdicts:
        line = f"{verdict.outcome}: {verdict.sentence}"
        print_line(ERRORS if verdict.failed or verdict.unclear else console, line)
    _write(console, report, files, found, verdicts, measured=earlier is None)
    if any(verdict.failed for verdict in verdicts):
        raise Exit(1)


def _write(
    console: Console,
    report: BenchReport,
    files: BenchFiles,
    found: Sequence[Change],
    verdicts: Sequence[Finding],
    *,
    measured: bool,
) -> None:
    """Write the page, and of a new bench its figures too."""
    from pipeline.bench.output.results import STATS, write_report
    from pipeline.bench.output.tables import write_tables
    from pipeline.reporting.bench.history import append, entry_of
    from pipeline.reporting.bench.page import PAGE, write_page

    entries = append(files.history, entry_of(report, files.note)) if files.history and measured else []
    paths = [write_report(report, files.out / STATS), *write_tables(report.cells, files.out)] if measured else []
    if files.save:
        paths.append(write_report(report, files.save))
    paths.append(write_page(files.out / PAGE, report, found, verdicts, entries))
    print_line(console, f"Written: {', '.join(map(str, paths))}")


def _print_findings(console: Console, report: BenchReport) -> None:
    for finding in report.findings:
        print_line(console, f"{finding.rule}: {finding.text} ({finding.where}); {finding.fix}.")


def _print_models(console: Console) -> None:
    from pipeline.bench.models.registry import first_pass_steps, known_models
    from pipeline.planning.manifest import read_pipeline

    print_line(console, f"Models: {', '.join(known_models())}")
    print_line(console, f"Steps: {', '.join(first_pass_steps(read_pipeline(None)))}")
