"""`framemill compare`: two or more runs side by side, and conditions on what may become worse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipeline.commands.executing import ERRORS
from pipeline.commands.options import Quiet
from pipeline.commands.places import check_file
from pipeline.errors import ConfigError, did_you_mean

DRIFT_ROWS = 5000  # of each table: drift is then known to a hundredth, and reading takes seconds

Outputs = Annotated[
    list[str],
    typer.Argument(metavar="OUT_A OUT_B ...", help="Outputs of runs. Repeated runs of one side: OUT_1,OUT_2,OUT_3."),
]
Baseline = Annotated[
    str | None, typer.Option("--baseline", metavar="BASE", help="The run to compare with; else the first one.")
]
Prices = Annotated[
    list[str] | None,
    typer.Option("--price", metavar="SIDE=NUMBER", help="Price of an hour of a side's machines, as in A=1.20."),
]


FailIf = Annotated[
    str | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITIONS",
        help="Exit with 1 where one of these is so, e.g. 'rate<-5%, faces.p95>+10%, drift>0.01'.",
    ),
]
Html = Annotated[
    str, typer.Option("--html", metavar="FILE", help="Where the comparison is written as a page; empty: nowhere.")
]
DriftRows = Annotated[
    int, typer.Option("--drift-rows", min=0, help="About how many rows of each table results are compared of; 0: none.")
]


def compare(
    outputs: Outputs,
    baseline: Baseline = None,
    fail_if: FailIf = None,
    price: Prices = None,
    html: Html = "compare.html",
    drift_rows: DriftRows = DRIFT_ROWS,
    quiet: Quiet = False,
) -> None:
    """Compare runs: whether they did the same work, how fast, and with what results.

    Exits with 1 where a condition of --fail-if is so, and with 2 where its figure was not measured. A change beyond
    its threshold whose interval holds 0 could not be told from chance: that is said, also with -q, and exits with 0.
    """
    from pipeline.telemetry.compare.comparison import compare as comparison_of
    from pipeline.telemetry.compare.comparison import letters
    from pipeline.telemetry.compare.gate import judge, parse
    from pipeline.telemetry.compare.page import write_page
    from pipeline.telemetry.compare.printing import print_comparison, say
    from pipeline.telemetry.compare.runs import read_sides

    if html:
        check_file("--html", Path(html))
    conditions = parse(fail_if) if fail_if is not None else []
    sides = read_sides([*([baseline] if baseline is not None else []), *outputs])
    prices = _prices(price or (), letters()[: len(sides)])
    found = comparison_of(sides, prices, drift_rows=drift_rows)
    console = Console(quiet=quiet)
    print_comparison(console, found)
    findings = [finding for pair in found.pairs for finding in judge(conditions, pair)]
    for pair in found.pairs if conditions else ():
        if pair.files.differ:  # a figure of other files, or of fewer, says nothing of speed
            say(ERRORS, f"The files of {pair.first.name} and {pair.second.name} differ: {pair.files.words}")
    for finding in findings:
        say(ERRORS if finding.failed or finding.unclear else console, f"{finding.outcome}: {finding.words}")
    if html:
        say(console, f"Page: {write_page(html, found, findings)}")
    if any(finding.failed for finding in findings):
        raise typer.Exit(1)


def _prices(words: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """By side, from words like `A=1.20`.

    Raises:
        ConfigError: a word is of another form, or there is no such side.
    """
    found: dict[str, float] = {}
    for word in words:
        name, equals, text = word.partition("=")
        try:
            amount = float(text)
        except ValueError:
            amount = -1.0
        if not equals or not 0 <= amount < float("inf"):
            raise ConfigError(f"--price {word!r} is not of the form SIDE=NUMBER, as in --price A=1.20.")
        if name not in names:
            raise ConfigError(f"--price {word!r}: there is no side {name!r}.{did_you_mean(name, names)}")
        found[name] = amount
    return found
