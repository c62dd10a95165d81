"""`framekiln compare`: two or more runs side by side, and conditions that fail the command."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument, Exit, Option

from framekiln.cli.console import ERRORS
from framekiln.cli.options import Json, Quiet
from framekiln.contract.errors import ConfigError, once
from framekiln.contract.user_files import check_file
from framekiln.reporting.compare import DRIFT_ROWS
from framekiln.reporting.terminal.console import print_line

Outputs = Annotated[list[str], Argument(metavar="OUT_A OUT_B ...", help="Outputs; repeated runs of a side: A1,A2,A3.")]
Baseline = Annotated[str | None, Option(metavar="BASE", help="The run to compare with. [dim]Default: the first.[/dim]")]
Prices = Annotated[list[str] | None, Option(metavar="SIDE=NUMBER", help="Hourly price of a side's machines: A=1.20.")]
_MET = "Exit with 1 if one of these is met, e.g. 'rate<-5%, faces.p95>+10%, drift>0.01'."
FailIf = Annotated[str | None, Option(metavar="CONDITIONS", help=_MET)]
_PAGE = "Write the comparison to this page; empty: no page. [dim]Default: compare-A-B.html beside output A.[/dim]"
Html = Annotated[str | None, Option(metavar="FILE", help=_PAGE)]
DriftRows = Annotated[int, Option(min=0, help="Compare about this many rows of each table; 0: none.")]


def compare(
    outputs: Outputs,
    baseline: Baseline = None,
    fail_if: FailIf = None,
    price: Prices = None,
    html: Html = None,
    drift_rows: DriftRows = DRIFT_ROWS,
    all_: Annotated[bool, Option("--all", help="Print every figure, and tables that are equal.")] = False,
    quiet: Quiet = False,
    json_: Json = False,
) -> None:
    """Compare runs: their work, their speed and their results.

    Exits with 1 if a condition of --fail-if is met, and with 2 if its figure was not measured. A change beyond its
    threshold is inconclusive if its interval contains 0: it is printed, also with -q, and exits with 0.
    """
    from framekiln.api.compare import compare as compared
    from framekiln.reporting.compare.page import print_comparison

    if html:
        check_file("--html", Path(html))
    base = [baseline] if baseline is not None else []
    comparison = compared(*base, *outputs, fail_if=fail_if, price=_parse_prices(price or ()), drift_rows=drift_rows)
    console = Console(quiet=quiet, stderr=json_)
    print_comparison(console, comparison.sides, every=all_)
    for pair in (pair for pair in comparison.pairs if fail_if is not None and pair.files.differ):
        # speeds over different files cannot be compared
        print_line(ERRORS, f"The files of {pair.first.name} and {pair.second.name} differ: {pair.files.sentence}")
    for finding in comparison.findings:
        print_line(ERRORS if finding.failed or finding.unclear else console, f"{finding.outcome}: {finding.sentence}")
    page = None if html == "" else comparison.save(html)
    if page is not None:
        print_line(console, f"Page: {page}")
    if json_:
        print(json.dumps({**comparison.to_dict(), "page": page}, indent=2))
    if comparison.failed:
        raise Exit(1)


def _parse_prices(arguments: Sequence[str]) -> dict[str, float]:
    """Parse prices like `A=1.20`, by side. Raises ConfigError if one has another form, or a side two prices."""
    prices: list[tuple[str, float]] = []
    for argument in arguments:
        name, _, text = argument.partition("=")
        try:
            prices.append((name, float(text)))
        except ValueError as error:
            problem = f"--price {argument!r} is not of the form SIDE=NUMBER, as in --price A=1.20."
            raise ConfigError(problem, code="FK-PRICE-FORM") from error
    return once(prices, "--price", code="FK-PRICE-FORM")
