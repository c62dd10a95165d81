"""The files of `framemill bench`: what it writes, and what it compares with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Option

from pipeline.contract.errors import ConfigError
from pipeline.reporting.terminal.console import print_line

if TYPE_CHECKING:
    from pipeline.bench.output.results import BenchReport


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

    @property
    def of_cells(self) -> list[str]:
        """Return the options that were given and read the figures of cells."""
        given = {"--save": self.save, "--against": self.against, "--fail-if": self.fail_if, "--history": self.history}
        return [name for name, value in given.items() if value]

    def base(self) -> Path:
        """Return the path of the base.

        Raises:
            ConfigError: there is none.
        """
        if self.against is None:
            raise ConfigError("--fail-if compares with a base; add --against BASE.", code="FM-BENCH-NO-BASE")
        return self.against


def write_bench(console: Console, report: BenchReport, out: Path, written: Sequence[Path] = ()) -> None:
    """Write `profile_stats.json` and the page, and print the paths of all files.

    Raises:
        OutputError: a file cannot be written.
    """
    from pipeline.bench.output.results import STATS, write_report
    from pipeline.reporting.bench.page import PAGE, write_page

    paths = [*written, write_report(report, out / STATS), write_page(out / PAGE, report)]
    print_line(console, f"Written: {', '.join(map(str, paths))}")
