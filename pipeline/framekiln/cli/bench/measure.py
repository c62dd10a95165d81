"""The measurement of `framekiln bench`: models one after the other, each cell printed as it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from framekiln.api.bench import measured
from framekiln.cli.bench.files import FileArguments, keep_figures, print_findings
from framekiln.cli.bench.options import CellArguments
from framekiln.cli.console import interruptible
from framekiln.lab.bench import BenchWatch
from framekiln.lab.measure.timed import USUAL_CALLS
from framekiln.reporting.bench.terminal import print_cell, print_model, print_search
from framekiln.reporting.terminal.console import print_line

if TYPE_CHECKING:
    from framekiln.lab.measure.tracing import Details
    from framekiln.lab.output.cells import CellResult
    from framekiln.lab.output.results import BenchReport, Finding, ModelInfo
    from framekiln.lab.sweep.batch_search import SearchResult


class _Printing(BenchWatch):
    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, findings: Sequence[Finding]) -> None:
        print_findings(findings)

    def model(self, info: ModelInfo) -> None:
        print_model(self._console, info)

    def cell(self, result: CellResult) -> None:
        print_cell(self._console, result)

    def search(self, results: Sequence[CellResult], found: SearchResult) -> None:
        print_search(self._console, results, found)

    def details(self, details: Details) -> None:
        for file in details.files:
            print_line(self._console, f"  recorded: {file}")
        for note in details.notes:
            print_line(self._console, f"  not recorded: {note}")


def measure(console: Console, models: Sequence[str], options: CellArguments, files: FileArguments) -> BenchReport:
    """Measure all cells of all models, and print each; an error or Ctrl-C keeps what was measured before.

    Raises:
        ConfigError: a value of an axis, a model or a function is unknown, or a model cannot be built.
    """

    plan = options.plan(files.target)
    is_open = options.iterations is None and options.duration is None
    if is_open and plan.measure.least > USUAL_CALLS:
        print_line(console, f"{plan.measure.least} calls of each cell, for --target {files.target}.")
    with interruptible("Interrupted."):
        return measured(models, plan, files.out, _Printing(console), lambda report: keep_figures(report, files))
