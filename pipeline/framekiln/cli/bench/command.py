"""`framekiln bench`: what a model costs, by layer, precision and batch."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Argument, Exit, Option

from framekiln.cli.bench.checks import UNMEASURED, check_options, check_unread, given
from framekiln.cli.bench.clips import ClipOptions, bench_clips
from framekiln.cli.bench.files import BenchFiles, require_any
from framekiln.cli.bench.measure import measured
from framekiln.cli.bench.nsight import NsightOptions, bench_nsight
from framekiln.cli.bench.options import BenchOptions
from framekiln.cli.bench.videos import SavOptions, bench_videos
from framekiln.cli.console import ERRORS
from framekiln.cli.options import Quiet, names, spread
from framekiln.contract.errors import ConfigError
from framekiln.reporting.terminal.console import print_line

if TYPE_CHECKING:
    from framekiln.lab.output.results import BenchReport
    from framekiln.reporting.bench.regression import Change
    from framekiln.reporting.compare.gate import Finding

_CHATTY = ("torchao", "torch.utils._pytree")
"""Loggers that warn whenever torchao is imported, which transformers does where it is installed."""
_PRINTED = 3  # findings of a rule in the terminal

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
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
    if list_ or model is None:
        _print_models(console)
        return
    if not names(model):
        raise ConfigError("MODEL is empty; `framekiln bench --list` names models.", code="FK-BENCH-MODEL")
    check_options(options, videos, clips, nsight, files)
    if videos.is_asked:
        bench_videos(console, names(model), options, videos, files.out)
    elif clips.clip:
        bench_clips(console, names(model), options, clips, files.out)
    elif nsight.is_asked:
        bench_nsight(console, names(model), options, nsight, files.out)
    else:
        _measure_or_compare(console, model, options, files)


def _measure_or_compare(console: Console, model: str, options: BenchOptions, files: BenchFiles) -> None:
    """Measure models, or read figures measured before, and compare them with a base."""
    from framekiln.lab.output.results import read_report
    from framekiln.reporting.bench.regression import changes, judge, lost, other_machine

    base = read_report(files.against) if files.against else None
    earlier = _earlier(model)
    if earlier is not None:
        check_unread([*given(options), *given(files, UNMEASURED)], "with figures measured before")
    report = read_report(earlier) if earlier else measured(console, names(model), options, files.out)
    paths = _write_figures(report, files, measured=earlier is None)
    found = changes(base, report) if base else []
    if base and (differs := other_machine(base, report)):
        print_line(ERRORS, f"The base was measured elsewhere: {differs}.")
    verdicts = [*judge(files.fail_if, found), *lost(base, report)] if base and files.fail_if else []
    _print_findings(console, report)
    for verdict in verdicts:
        line = f"{verdict.outcome}: {verdict.sentence}"
        print_line(ERRORS if verdict.failed or verdict.unclear else console, line)
    _write_page(console, report, files, paths, found, verdicts)
    if earlier is None:
        require_any(report.cells)
    if any(verdict.failed for verdict in verdicts):
        raise Exit(1)


def _earlier(model: str) -> Path | None:
    """Return the path of figures measured before, where MODEL is one; a model's name goes before a folder's."""
    from framekiln.lab.models.registry import is_model
    from framekiln.planning.manifest import read_pipeline

    is_folder = os.path.isdir(model)  # noqa: PTH112 - pathlib raises for a long name
    is_path = model.endswith(".json") or (is_folder and not is_model(model, read_pipeline(None)))
    return Path(model) if is_path else None


def _write_figures(report: BenchReport, files: BenchFiles, *, measured: bool) -> list[Path]:
    """Write the figures of a new bench, and a copy where one is asked for."""
    from framekiln.lab.output.results import STATS, write_report
    from framekiln.lab.output.tables import write_tables

    paths = [write_report(report, files.out / STATS), *write_tables(report.cells, files.out)] if measured else []
    return [*paths, write_report(report, files.save)] if files.save else paths


def _write_page(
    console: Console,
    report: BenchReport,
    files: BenchFiles,
    paths: Sequence[Path],
    found: Sequence[Change],
    verdicts: Sequence[Finding],
) -> None:
    """Write the page, with the history where one is kept."""
    from framekiln.reporting.bench.history import append, entry_of
    from framekiln.reporting.bench.page import PAGE, write_page

    entries = append(files.history, entry_of(report, files.note)) if files.history else []
    page = write_page(files.out / PAGE, report, found, verdicts, entries)
    print_line(console, f"Written: {', '.join(map(str, [*paths, page]))}")


def _print_findings(console: Console, report: BenchReport) -> None:
    """Print the first findings of each rule; a sweep has a rule in many of its cells, and the page lists all."""
    rules = dict.fromkeys(finding.rule for finding in report.findings)
    for rule in rules:
        found = [finding for finding in report.findings if finding.rule == rule]
        for finding in found[:_PRINTED]:
            print_line(console, f"{rule}: {finding.text} ({finding.where}); {finding.fix}.")
        if len(found) > _PRINTED:
            print_line(console, f"{rule}: {len(found) - _PRINTED} more on the page.")


def _print_models(console: Console) -> None:
    from framekiln.lab.models.registry import first_pass_steps, known_models
    from framekiln.planning.manifest import read_pipeline

    print_line(console, f"Models: {', '.join(known_models())}")
    print_line(console, f"Steps: {', '.join(first_pass_steps(read_pipeline(None)))}")
