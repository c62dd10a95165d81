"""Runs side by side: whether they did the same work, their speeds, and how far their results agree."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from framekiln.api import html
from framekiln.api.options import Place
from framekiln.api.output import Output
from framekiln.contract.errors import ConfigError, check_known
from framekiln.profiling.targets import Judgement
from framekiln.reporting.compare import DRIFT_ROWS, page, tables
from framekiln.reporting.compare.comparison import Comparison, FigurePair, Pair, letters
from framekiln.reporting.compare.comparison import compare as compare_sides
from framekiln.reporting.compare.gate import judge, parse
from framekiln.reporting.compare.page import print_comparison, verdict
from framekiln.reporting.compare.runs import read_sides
from framekiln.reporting.kit.pages import write_asked
from framekiln.reporting.terminal.console import printed

SideGiven = Output | Place | Sequence[Output | Place]
"""An output, or the outputs of repeated runs."""


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """A comparison of each side with the first."""

    sides: Comparison
    findings: tuple[Judgement, ...]  # findings for each condition of `fail_if` and each step

    @property
    def pairs(self) -> Sequence[Pair]:
        """The comparison of each side with the first: work, files, figures, drift."""
        return self.sides.pairs

    @property
    def failed(self) -> bool:
        """True if a condition of `fail_if` is met."""
        return any(finding.failed for finding in self.findings)

    @property
    def verdicts(self) -> list[str]:
        """A sentence for each pair: same work or not, agreement of results, and speed."""
        return [verdict(pair) for pair in self.pairs]

    def save(self, path: Place | None = None) -> str:
        """Write the comparison as a page, and return its path.

        Args:
            path: of the file; compare-A-B.html beside the first output by default.

        Raises:
            OutputError: it cannot be written.
        """
        place = page.default_path(self.sides) if path is None else os.fspath(path)
        return write_asked(place, page.render(self.sides, self.findings))

    def to_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold: verdicts, work, files, figures and drift of each pair, and findings."""
        outcomes = [{"outcome": finding.outcome, "sentence": finding.sentence} for finding in self.findings]
        return {"pairs": list(map(_describe_pair, self.pairs)), "findings": outcomes, "failed": self.failed}

    def __str__(self) -> str:
        text = printed(lambda console: print_comparison(console, self.sides))
        return text + "".join(f"{finding.outcome}: {finding.sentence}\n" for finding in self.findings)

    def _repr_html_(self) -> str:
        """Return verdicts, and each step's significant changes, for notebooks."""
        parts = []
        for pair in self.pairs:
            told = [one for figures in pair.figures.values() for one in figures if one.difference]
            table = tables.figures_table(told, (pair.first.name, pair.second.name))
            parts += [html.lines([verdict(pair), *pair.notes]), html.table(table)]
        parts.append(html.lines(f"{finding.outcome}: {finding.sentence}" for finding in self.findings))
        return "".join(parts)


def compare(
    *sides: SideGiven,
    fail_if: str | None = None,
    price: Mapping[str, float] | None = None,
    drift_rows: int = DRIFT_ROWS,
) -> RunComparison:
    """Compare the work, speed and results of runs, each side with the first.

    Args:
        sides: two outputs or more. A list is repeated runs of one side.
        fail_if: conditions such as `rate<-5%, faces.p95>+10%, drift>0.01` (docs/measuring/comparing.md).
        price: price of an hour on the machines of a side, as in `{"A": 1.20}`.
        drift_rows: number of rows to compare in each table, approximately; 0 for none.

    Raises:
        UserError: a side is no output, a condition is wrong, or its figure was not measured.

    >>> import framekiln
    >>> comparison = framekiln.compare(output, other, fail_if="crc.drift>0.01")
    >>> comparison.failed
    False
    """
    conditions = parse(fail_if) if fail_if is not None else []
    runs = read_sides([_list_paths(side) for side in sides])
    names = letters()[: len(runs)]
    for name, amount in (price or {}).items():
        check_known(name, names, f"--price: there is no side {name!r}.", code="FK-PRICE-SIDE")
        if not 0 <= amount < float("inf"):
            raise ConfigError(f"--price: {amount!r} of {name} is no price; give a number from 0.", code="FK-PRICE-FORM")
    compared = compare_sides(runs, price or {}, drift_rows=drift_rows)
    findings = tuple(finding for pair in compared.pairs for finding in judge(conditions, pair))
    return RunComparison(sides=compared, findings=findings)


def _list_paths(side: SideGiven) -> str | list[str]:
    if isinstance(side, Output):
        return [side.path]
    if isinstance(side, str | os.PathLike):
        return os.fspath(side)
    return [each.path if isinstance(each, Output) else os.fspath(each) for each in side]


def _describe_pair(pair: Pair) -> dict[str, Any]:
    return {
        "sides": {side.name: [run.path for run in side.runs] for side in (pair.first, pair.second)},
        "verdict": verdict(pair),
        "work": [asdict(step) for step in pair.work],
        "files": pair.files.sentence,
        "changes": [asdict(change) for change in pair.changes],
        "figures": {step: list(map(_describe_figure, figures)) for step, figures in pair.figures.items()},
        "drift": {step: {"rows": drift.rows, "value": drift.value} for step, drift in pair.drift.items()},
        "notes": list(pair.notes),
    }


def _describe_figure(figure: FigurePair) -> dict[str, Any]:
    interval = figure.interval and [figure.interval.low, figure.interval.high]
    values = {key: getattr(figure, key) for key in ("name", "unit", "first", "second", "change", "difference")}
    return {**values, "interval": interval}
