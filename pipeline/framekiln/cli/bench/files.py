"""The files of `framekiln bench`: what it writes, and what it compares with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from rich.console import Console
from typer import Option

from framekiln.cli.console import interruptible, print_note
from framekiln.reporting.terminal.console import print_line

if TYPE_CHECKING:
    from framekiln.api.bench import BenchFiles as ApiFiles
    from framekiln.lab.output.results import BenchReport, Finding
    from framekiln.reporting.bench.pictures import PictureRow


@dataclass(frozen=True, kw_only=True)
class BenchFiles:
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
    history: Annotated[Path | None, Option(metavar="FILE", help="Add a line to this .jsonl, and draw it.")] = None
    note: Annotated[str, Option(help="With --history: what was changed.")] = ""

    def files(self) -> ApiFiles:
        """Return the same for `framekiln.bench`."""
        from framekiln.api.bench import BenchFiles as ApiFiles

        return ApiFiles(**vars(self))


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


def write_bench(
    console: Console,
    report: BenchReport,
    out: Path,
    written: Sequence[Path] = (),
    pictures: Sequence[PictureRow] = (),
) -> None:
    """Write `profile_stats.json` and the page, and print the paths of all files.

    Raises:
        OutputError: a file cannot be written.
    """
    from framekiln.lab.output.results import STATS, write_report
    from framekiln.reporting.bench.page import PAGE, write_page

    paths = [*written, write_report(report, out / STATS), write_page(out / PAGE, report, pictures=pictures)]
    print_line(console, f"Written: {', '.join(map(str, paths))}")
