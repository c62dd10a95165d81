"""One model alone: its time, memory and precision by batch and size."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from typing_extensions import Unpack

from framekiln.api import html
from framekiln.api.bench_options import BenchOptions, FileOptions, bench_plan
from framekiln.api.options import Given, Manifest, Place, checked, shows, split_names
from framekiln.api.request import pipeline_of, with_steps
from framekiln.contract.errors import ConfigError
from framekiln.contract.stage import Stage
from framekiln.contract.user_files import check_file, check_folder
from framekiln.lab.bench import Bench, BenchEvent, ModelGiven
from framekiln.lab.findings import LOAD
from framekiln.lab.measure.timed import check_device
from framekiln.lab.models.registry import known_models
from framekiln.lab.output import results
from framekiln.lab.output.cells import CellResult
from framekiln.lab.samples import FIGURES, samples, verdicts
from framekiln.planning.limits import Limit, parse_targets
from framekiln.planning.manifest import PipelineFile
from framekiln.profiling.targets import Judgement
from framekiln.reporting.bench import history
from framekiln.reporting.bench.history import changes, check_base, conditions, judge, lost, other_conditions
from framekiln.reporting.bench.page import PAGE, render
from framekiln.reporting.bench.tables import cells_table
from framekiln.reporting.compare.comparison import FigurePair
from framekiln.reporting.kit.pages import write_page

_DETAILS = "details"
"""Folder of recordings, inside `out`."""


@dataclass(frozen=True, kw_only=True)
class BenchFiles:
    """The files that a bench writes, and the base for its comparison."""

    out: Path | None = None  # folder for tables, figures and the page
    save: Path | None = None  # file for the figures, as a base
    against: Path | None = None  # figures to compare with
    fail_if: str = ""
    target: str = ""  # limits of the latency
    history: Path | None = None
    note: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        places = {name: given[name] for name in ("out", "save", "against", "history")}
        paths: dict[str, Any] = {name: place and Path(place) for name, place in places.items()}
        return cls(**paths, **{name: given[name] for name in ("fail_if", "target", "note")})

    def base(self) -> results.BenchReport | None:
        """Read the figures to compare with, before they may be overwritten. Raises ConfigError: the file has none."""
        return results.read_report(self.against) if self.against else None

    def check(self) -> Self:
        """Check that all files can be written, and that conditions have a base; return the same object.

        Raises ConfigError: a file cannot be written, or the base is missing.
        """
        if self.out:
            check_folder("--out", self.out)
        if self.save:
            check_file("--save", self.save)
        if self.history:
            history.check(self.history)
        if self.fail_if and self.against is None:
            raise ConfigError("--fail-if compares with a base; add --against BASE.", code="FK-BENCH-NO-BASE")
        if base := self.base():
            check_base(self.fail_if, base)
        parse_targets(self.target, FIGURES)
        return self

    @property
    def limits(self) -> list[Limit]:
        """Return the targets and conditions; a percentile and an interval need many calls."""
        return [*parse_targets(self.target, FIGURES), *(conditions(self.fail_if) if self.fail_if else ())]

    def write(self, report: results.BenchReport, *, is_new: bool) -> list[Path]:
        """Write the figures of a new bench, and a requested copy."""
        paths = []
        if self.out is not None and is_new:
            rows = [*report.cells, *report.video, *report.extra.clips]
            paths = [results.write_report(report, self.out / results.STATS), *results.write_tables(rows, self.out)]
        return [*paths, results.write_report(report, self.save)] if self.save else paths


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """The figures of one bench."""

    report: results.BenchReport
    changes: Sequence[FigurePair] = ()  # comparison with the base
    verdicts: Sequence[Judgement] = ()  # verdicts on conditions in `fail_if` and on targets
    base_differs: str = ""  # differences of machine, input, settings and weights; times cannot be compared then
    files: Sequence[Path] = ()  # paths of the written files

    @property
    def cells(self) -> Sequence[CellResult]:
        """A result for each combination of batch, size, precision and so on."""
        return self.report.cells

    @property
    def findings(self) -> Sequence[results.BenchFinding]:
        """Findings on what is slow or wrong, each with a fix."""
        return self.report.findings

    @property
    def failed(self) -> bool:
        """True if a condition of `fail_if` is met, or a target is missed."""
        return any(verdict.failed for verdict in self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as profile_stats.json has them (docs/measuring/bench.md)."""
        return asdict(self.report)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.cells)} cells, {len(self.findings)} findings)"

    def _repr_html_(self) -> str:
        """Return the table of cells, findings and verdicts for notebooks."""
        first, found = list[str](), list[str]()
        for finding in self.findings:
            line = f"{finding.rule}: {finding.text} ({finding.where}); {finding.fix}."
            (first if finding.rule == LOAD else found).append(line)
        found += [f"{verdict.outcome}: {verdict.sentence}" for verdict in self.verdicts]
        return html.lines(first) + html.table(cells_table(self.report)) + html.lines(found)


@shows(BenchOptions)
def bench(
    model: ModelGiven | Given | Sequence[ModelGiven | Given] | Place, **options: Unpack[BenchOptions]
) -> BenchResult:
    """Measure a model alone: time, memory, layers and precision, for each requested batch and size.

    Nothing else should use the machine meanwhile. If published weights are missing, they are random.

    Args:
        model: one of these, or several: a name of `framekiln bench --list`, a step of the pipeline, a stage of your
            own, a function that returns a torch module (docs/measuring/bench.md). A path of earlier figures is read
            instead of measured.
        options: options of the command by the same names, listed in `framekiln.api.bench_options`. Without `out` no
            page is written.

    Raises:
        ConfigError: a model or an option is unknown, a model cannot be built, or nothing was measured.
        OutputError: a file cannot be written.

    >>> import framekiln, torch
    >>> result = framekiln.bench(lambda: (torch.nn.Linear(8, 4), torch.rand(1, 8)), batch=[1, 4], iterations=3)
    >>> [(cell.cell.batch, cell.outcome) for cell in result.cells]
    [(1, 'ok'), (4, 'ok')]
    """
    files = BenchFiles.of(checked(BenchOptions, options)).check()
    cells = {name: value for name, value in options.items() if name not in FileOptions.__annotations__}
    if (earlier := earlier_figures(model, options.get("pipeline"))) is not None:
        if cells:
            problem = f"{next(iter(cells))} has no effect on figures of an earlier bench; leave it out."
            raise ConfigError(problem, code="FK-BENCH-OPTION")
        return concluded(results.read_report(earlier), files, files.base(), is_new=False)
    check_device(options.get("device"))
    result = measured(model, cells, files)
    results.require_any(result.cells)
    return result


def measured(
    model: Any, cells: Mapping[str, Any], files: BenchFiles, watch: Callable[[BenchEvent], None] = lambda _: None
) -> BenchResult:
    """Measure all cells of all models.

    Raises ConfigError: a model or an option is unknown, or a model cannot be built; OutputError: a file cannot be
    written.
    """
    base, plan = files.base(), bench_plan(cells, files.limits)
    models, pipeline = _list_models(model, plan.pipeline)
    work = Bench(replace(plan, pipeline=pipeline), watch)
    with rescued(work.report, files):
        work.measure(models, files.out and files.out / _DETAILS)
    return concluded(work.report(), files, base, is_new=True)


@contextmanager
def rescued(report: Callable[[], results.BenchReport], files: BenchFiles) -> Iterator[None]:
    """Write the results of this block, also if an error or Ctrl-C ends it."""
    try:
        yield
    except BaseException:
        if samples(found := report()):
            concluded(found, BenchFiles(out=files.out), None, is_new=True)
        raise


def concluded(
    report: results.BenchReport, files: BenchFiles, base: results.BenchReport | None, *, is_new: bool
) -> BenchResult:
    """Write the files of a bench, compare it with its base and targets, and return the result.

    Raises ConfigError: the bench and its base have no cell in common, or a condition names a figure that no cell has;
    OutputError: a file cannot be written.
    """
    aims = verdicts(samples(report), parse_targets(files.target, FIGURES))
    report = replace(report, targets=tuple(row for row, _ in aims)) if aims else report
    paths = files.write(report, is_new=is_new)
    found = changes(base, report) if base else []
    judged = [*judge(files.fail_if, found), *lost(base, report)] if base and files.fail_if else []
    entries = history.append(files.history, history.entry_of(report, files.note)) if files.history else []
    if files.out is not None:
        paths.append(write_page(files.out / PAGE, render(report, found, judged, entries)))
    differs = other_conditions(base, report) if base else ""
    judged += [verdict for _, verdict in aims]
    return BenchResult(report=report, changes=found, verdicts=judged, base_differs=differs, files=paths)


def earlier_figures(model: Any, pipeline: Manifest | None) -> Path | None:
    """Return the path of earlier figures if the model is one; a model's name wins over a folder's."""
    if not isinstance(model, str | os.PathLike):
        return None
    text = os.fspath(model)
    is_folder = os.path.isdir(text)  # noqa: PTH112 - pathlib raises for a long name
    if text.endswith(".json"):
        return Path(text)
    is_model = is_folder and (":" in text or text in known_models() or text in pipeline_of(pipeline).steps)
    return Path(text) if is_folder and not is_model else None


def _list_models(model: Any, pipeline: PipelineFile) -> tuple[list[ModelGiven], PipelineFile]:
    """Return the models, and the pipeline extended by the stages among them."""
    given = [model] if isinstance(model, str | Stage) or callable(model) else list(model)
    models: list[ModelGiven] = []
    for each in given:
        if isinstance(each, str):
            models += split_names(each)
        elif isinstance(each, Stage) or (isinstance(each, type) and issubclass(each, Stage)):
            pipeline, names = with_steps(pipeline, each)
            models += names
        else:
            models.append(each)
    if not models:
        raise ConfigError("MODEL is empty; `framekiln bench --list` names models.", code="FK-BENCH-MODEL")
    return models, pipeline
