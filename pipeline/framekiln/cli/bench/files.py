"""The end of `framekiln bench`, whatever it measured: files, findings and verdicts."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from typer import Exit

from framekiln.api.bench import BenchFiles, concluded
from framekiln.cli.console import ERRORS, interruptible, print_note
from framekiln.lab.findings import LOAD, load
from framekiln.lab.measure.device_facts import bench_environment
from framekiln.lab.output.results import BenchReport, Finding, new_report, require_any
from framekiln.lab.samples import samples
from framekiln.reporting.bench.page import PictureRow
from framekiln.reporting.terminal.console import print_line

_PRINTED = 3  # findings of a rule in the terminal


@contextmanager
def measuring(
    console: Console,
    device: str,
    files: BenchFiles,
    rows: Sequence[object],
    figures: Callable[[], Mapping[str, Any]],
    pictures: Callable[[], Sequence[PictureRow]] = tuple,
) -> Iterator[Path]:
    """Give a folder to a measurement that fills `rows`, then write, print and compare its figures.

    `figures` returns the rows as fields of a report, and `pictures` those of the page. What was measured before an
    error or Ctrl-C is written, too; Ctrl-C ends this process.

    Raises:
        ConfigError: nothing was measured, or nothing that the base has.
        OutputError: a file cannot be written.
        Exit: a condition is met, or a target is not.
    """
    base, environment = files.base(), bench_environment(device)
    crowded = tuple(load(environment))
    print_findings(crowded)
    with interruptible("Interrupted."), tempfile.TemporaryDirectory() as folder:
        try:
            yield Path(folder)
        except BaseException:
            if rows:
                keep_figures(new_report(environment, findings=crowded, **figures()), files, pictures())
            raise
    finish(console, new_report(environment, findings=crowded, **figures()), files, base, pictures=pictures())


def print_findings(findings: Sequence[Finding]) -> None:
    """Print what makes all figures worthless, also with --quiet."""
    for finding in findings:
        print_note(f"{finding.rule}: {finding.text}; {finding.fix}.")


def keep_figures(report: BenchReport, files: BenchFiles, pictures: Sequence[PictureRow] = ()) -> None:
    """Write the figures and the page of a bench that an error or Ctrl-C has ended, and compare nothing.

    Raises:
        OutputError: a file cannot be written.
    """
    concluded(report, BenchFiles(out=files.out), None, is_new=True, pictures=pictures)


def finish(
    console: Console,
    report: BenchReport,
    files: BenchFiles,
    base: BenchReport | None,
    *,
    is_new: bool = True,
    pictures: Sequence[PictureRow] = (),
) -> None:
    """Write all files, print findings and verdicts, and end with 1 if a condition is met or a target is not.

    Raises:
        ConfigError: nothing was measured, or nothing that the base has.
        OutputError: a file cannot be written.
    """
    result = concluded(report, files, base, is_new=is_new, pictures=pictures)
    if result.base_differs:
        print_note(f"The base was measured elsewhere: {result.base_differs}.")
    _print_rules(console, [one for one in report.findings if one.rule != LOAD or not is_new])
    for verdict in result.verdicts:
        line = f"{verdict.outcome}: {verdict.sentence}"
        print_line(ERRORS if verdict.failed or verdict.unclear else console, line)
    print_line(console, f"Written: {', '.join(map(str, result.files))}")
    if is_new:
        require_any(samples(report))
    if result.failed:
        raise Exit(1)


def _print_rules(console: Console, findings: Sequence[Finding]) -> None:
    """Print the first findings of each rule; a sweep has a rule in many of its cells, and the page lists all."""
    for rule in dict.fromkeys(finding.rule for finding in findings):
        found = [finding for finding in findings if finding.rule == rule]
        for finding in found[:_PRINTED]:
            print_line(console, f"{rule}: {finding.text} ({finding.where}); {finding.fix}.")
        if len(found) > _PRINTED:
            print_line(console, f"{rule}: {len(found) - _PRINTED} more on the page.")
