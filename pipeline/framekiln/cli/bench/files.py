"""The files of `framekiln bench`: what it writes, and what it compares with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from rich.console import Console
from typer import Exit, Option

from framekiln.cli.console import ERRORS, interruptible, print_note
from framekiln.reporting.terminal.console import print_line

if TYPE_CHECKING:
    from framekiln.api.bench import BenchFiles
    from framekiln.lab.output.results import BenchReport, Finding
    from framekiln.reporting.bench.page import PictureRow


_PRINTED = 3  # findings of a rule in the terminal


@dataclass(frozen=True, kw_only=True)
class FileArguments:
    """Options for files."""

    out: Annotated[Path, Option("--out", metavar="DIR", help="Folder for tables, figures, the page.")] = Path("bench")
    save: Annotated[Path | None, Option(metavar="FILE", help="Also write the figures here, as a base.")] = None
    against: Annotated[
        Path | None,
        Option(metavar="BASE", help="Compare with these figures. Instead of MODEL, give figures measured before."),
    ] = None
    fail_if: Annotated[
        str,
        Option(metavar="CONDITIONS", help="With --against: exit with 1 if one is met, as 'p50>+5%,peak_gb>+2%'."),
    ] = ""
    target: Annotated[
        str,
        Option(
            metavar="LIMITS",
            help="Exit with 1 if a latency in ms is not below, as p50<16.67,p95<20; 1080p60, 4k30, stereo60 name sets.",
        ),
    ] = ""
    history: Annotated[Path | None, Option(metavar="FILE", help="Add a line to this .jsonl, and draw it.")] = None
    note: Annotated[str, Option(help="With --history: what was changed.")] = ""

    def base(self) -> BenchReport | None:
        """Read the figures to compare with, before they may be written anew.

        Raises:
            ConfigError: the file is no report.
        """
        from framekiln.lab.output.results import read_report

        return read_report(self.against) if self.against else None

    def files(self) -> BenchFiles:
        """Return the same for `framekiln.bench`."""
        from framekiln.api.bench import BenchFiles

        return BenchFiles(**vars(self))


class Measured(Protocol):
    """A cell, or a row of a video or a clip."""

    @property
    def outcome(self) -> str:
        """Return ok, or what became of it."""

    @property
    def why(self) -> str:
        """Return the reason of any other outcome than ok."""


@contextmanager
def kept(rows: Sequence[Measured], write: Callable[[], None]) -> Iterator[None]:
    """Write what was measured until an error or Ctrl-C ends the block; Ctrl-C ends this process."""
    with interruptible("Interrupted."):
        try:
            yield
        except BaseException:
            if rows:
                write()
            raise


def print_findings(findings: Sequence[Finding]) -> None:
    """Print what makes all figures worthless, also with --quiet."""
    for finding in findings:
        print_note(f"{finding.rule}: {finding.text}; {finding.fix}.")


def keep_figures(report: BenchReport, files: FileArguments, pictures: Sequence[PictureRow] = ()) -> None:
    """Write the figures and the page of a bench that an error or Ctrl-C has ended, and compare nothing.

    Raises:
        OutputError: a file cannot be written.
    """
    from framekiln.api.bench import BenchFiles, concluded

    concluded(report, BenchFiles(out=files.out), None, is_new=True, pictures=pictures)


def finish(
    console: Console,
    report: BenchReport,
    files: FileArguments,
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
    from framekiln.api.bench import concluded
    from framekiln.lab.findings import LOAD
    from framekiln.lab.output.results import require_any
    from framekiln.lab.samples import samples

    result = concluded(report, files.files(), base, is_new=is_new, pictures=pictures)
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
