"""`framekiln compare` and `check`: runs side by side, with conditions that fail the command, and damage in one."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console
from typer import Argument, Exit, Option

from framekiln.api.writable import check_file
from framekiln.cli.console import ERRORS
from framekiln.cli.options import Quiet
from framekiln.contract.errors import ConfigError
from framekiln.contract.output_names import FRAMES, RUN_RECORD
from framekiln.contract.row_errors import DECODE
from framekiln.output.object_store import Store
from framekiln.reporting.compare import DRIFT_ROWS
from framekiln.reporting.compare.runs import read_run
from framekiln.reporting.plan_facts import rebuild
from framekiln.reporting.terminal.console import print_line
from framekiln.runtime.check.check import DamagedFile, check_output
from framekiln.runtime.check.mending import expected_parts
from framekiln.runtime.run.progress import unfinished
from framekiln.runtime.run.record import read_run_record

Outputs = Annotated[
    list[str],
    Argument(metavar="OUT_A OUT_B ...", help="Outputs of runs. Repeated runs of one side: OUT_1,OUT_2,OUT_3."),
]
Baseline = Annotated[
    str | None,
    Option("--baseline", metavar="BASE", help="The run to compare with. [dim]Default: the first one.[/dim]"),
]
Prices = Annotated[
    list[str] | None,
    Option("--price", metavar="SIDE=NUMBER", help="Price of an hour on the machines of a side, as in A=1.20."),
]
FailIf = Annotated[
    str | None,
    Option(
        "--fail-if",
        metavar="CONDITIONS",
        help="Exit with 1 if one of these is met, e.g. 'rate<-5%, faces.p95>+10%, drift>0.01'.",
    ),
]
Html = Annotated[
    str | None,
    Option(
        "--html",
        metavar="FILE",
        help="File for the comparison as a page; empty for none. [dim]Default: compare-A-B.html beside output A.[/dim]",
    ),
]
DriftRows = Annotated[
    int, Option("--drift-rows", min=0, help="About this many rows of each table are compared; 0 for none.")
]


def compare(
    outputs: Outputs,
    baseline: Baseline = None,
    fail_if: FailIf = None,
    price: Prices = None,
    html: Html = None,
    drift_rows: DriftRows = DRIFT_ROWS,
    quiet: Quiet = False,
) -> None:
    """Compare runs: their work, their speed and their results.

    Exits with 1 if a condition of --fail-if is met, and with 2 if its figure was not measured. A change beyond its
    threshold is inconclusive if its interval contains 0: it is printed, also with -q, and exits with 0.
    """
    from framekiln.api.compare import compare as compared
    from framekiln.reporting.compare.page import print_comparison
    from framekiln.reporting.terminal.console import print_line

    if html:
        check_file("--html", Path(html))
    base = [baseline] if baseline is not None else []
    comparison = compared(*base, *outputs, fail_if=fail_if, price=_parse_prices(price or ()), drift_rows=drift_rows)
    console = Console(quiet=quiet)
    print_comparison(console, comparison.sides)
    for pair in (pair for pair in comparison.pairs if fail_if is not None and pair.files.differ):
        # speeds over other files cannot be compared
        print_line(ERRORS, f"The files of {pair.first.name} and {pair.second.name} differ: {pair.files.sentence}")
    for finding in comparison.findings:
        print_line(ERRORS if finding.failed or finding.unclear else console, f"{finding.outcome}: {finding.sentence}")
    if html != "":
        print_line(console, f"Page: {comparison.save(html)}")
    if comparison.failed:
        raise Exit(1)


def _parse_prices(arguments: Sequence[str]) -> dict[str, float]:
    """Parse prices like `A=1.20`, by side. Raises ConfigError if an argument has another form."""
    prices: dict[str, float] = {}
    for argument in arguments:
        name, _, text = argument.partition("=")
        try:
            amount = float(text)
        except ValueError:
            amount = -1.0
        if not 0 <= amount < float("inf"):
            raise ConfigError(
                f"--price {argument!r} is not of the form SIDE=NUMBER, as in --price A=1.20.", code="FK-PRICE-FORM"
            )
        prices[name] = amount
    return prices


Out = Annotated[str, typer.Argument(help="Folder or URL of a run's output.")]

_FOUND = 1  # exit code


def check(output: Out) -> None:
    """Read an output through: damaged tables, lost images and results, and rows that are there twice.

    Ends with exit code 1 if there are any. `framekiln run` with the same options computes the files again.
    """
    console, store, fingerprints, record = Console(), Store(output), dict[str, str](), list[DamagedFile]()
    try:
        fingerprints = read_run(output).fingerprints
    except ConfigError as error:
        if error.code != "FK-RUN-RECORD-DAMAGED":
            raise
        text = "damaged, and it names the columns of all tables: check again after a run"
        record = [DamagedFile(path=RUN_RECORD, text=text)]
    with suppress(FileNotFoundError, ConfigError):  # what a run has not computed yet is neither lost nor damaged
        if (cut := unfinished(store, read_run_record(store))) is not None:
            print_line(console, f"Unfinished: {cut.sentence}")
    findings = [*record, *check_output(store, fingerprints, _find_expected(store, fingerprints))]
    for finding in findings:
        print_line(console, f"{finding.path}: {finding.text}.")
    if findings:
        print_line(
            console, f"{len(findings)} findings. `framekiln run` with the same options computes the files again."
        )
        raise typer.Exit(_FOUND)
    print_line(console, f"{store.root}: nothing is damaged, lost or double.")


def _find_expected(store: Store, fingerprints: Mapping[str, str]) -> dict[str, pa.Schema]:
    """Return the columns that tables have by the code of the last run's steps; empty where its record is damaged."""
    with suppress(FileNotFoundError, ConfigError):
        steps = read_run_record(store)["steps"]
        stages = rebuild(steps)
        folders = {f"{name}-{fingerprints[name]}": stage for name, stage in stages.items() if name in fingerprints}
        expected = expected_parts(f"{DECODE}-{fingerprints.get(DECODE, '')}", folders)
        if stages.keys() != steps.keys():  # of a script or notebook: only they know their columns
            expected[FRAMES] = expected[FRAMES].remove_metadata()
        return expected
    return {}
