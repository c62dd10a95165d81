"""The measurement of `framekiln bench`: models one after the other, each cell printed as it ends."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from framekiln.cli.bench.files import kept, write_bench
from framekiln.cli.bench.options import BenchOptions
from framekiln.reporting.terminal.console import print_line

if TYPE_CHECKING:
    from framekiln.lab.models.model import ModelRecipe
    from framekiln.lab.output.cells import CellResult
    from framekiln.lab.output.results import BenchReport, Finding, ModelInfo
    from framekiln.lab.sweep.runner import ModelBench

_DETAILS = "details"
"""Folder of recordings, under that of --out."""


def measured(console: Console, models: Sequence[str], options: BenchOptions, out: Path) -> BenchReport:
    """Measure all cells of all models.

    Raises:
        ConfigError: a value of an axis, a model or a function is unknown, or a model cannot be built.
    """
    from framekiln.lab.findings import findings
    from framekiln.lab.measure.tracing import function_of
    from framekiln.lab.output.environment import bench_environment
    from framekiln.lab.output.results import new_report, with_figures
    from framekiln.lab.output.tables import write_tables
    from framekiln.lab.sweep.runner import ModelBench
    from framekiln.reporting.bench.terminal import print_model

    options.axes()  # mistakes in it before a model is built
    environment = bench_environment(options.measure().device)
    infos: dict[str, ModelInfo] = {}
    cells: list[CellResult] = []
    found: list[Finding] = []

    def report() -> BenchReport:
        models = [with_figures(info, [cell for cell in cells if cell.model == info.name]) for info in infos.values()]
        every = (*findings(cells), *found)
        return new_report(environment, models=tuple(models), cells=tuple(cells), findings=every)

    def write() -> None:
        write_bench(console, report(), out, write_tables(cells, out))

    with kept(cells, write), recipes(models, options) as sources:
        if options.lines:
            function_of(options.lines)
        for source in sources:
            with ModelBench(source, options.measure()) as process:
                infos[source.name] = process.about()
                print_model(console, infos[source.name])
                _measure_cells(console, process, options, cells)
                found += _details(console, process, source.name, options, out)
    return report()


@contextmanager
def recipes(models: Sequence[str], options: BenchOptions) -> Iterator[list[ModelRecipe]]:
    """Return the models by name; rows of steps are kept until the end of the block.

    Raises:
        ConfigError: a model is unknown.
    """
    from framekiln.lab.models.registry import find_model, is_step
    from framekiln.lab.models.stage_model import stage_source
    from framekiln.planning.manifest import read_pipeline

    pipeline, device = read_pipeline(None), options.measure().device
    with tempfile.TemporaryDirectory(prefix="framekiln-") as name:
        folder = Path(name)
        inputs = options.input_ or []
        if not inputs and any(is_step(model, pipeline) for model in models):
            from framekiln.media.samples import make

            inputs = [str(folder / "samples")]
            make(folder / "samples")
        yield [
            stage_source(model, inputs, device, folder, options.weights_dir)
            if is_step(model, pipeline)
            else find_model(model, pipeline, options.weights_dir)
            for model in models
        ]


def _measure_cells(console: Console, process: ModelBench, options: BenchOptions, done: list[CellResult]) -> None:
    """Measure the cells of a model, and add each to those that are done."""
    from framekiln.reporting.bench.terminal import print_cell, print_search

    def on_result(result: CellResult) -> None:
        print_cell(console, result)
        done.append(result)

    cells = options.axes().cells()
    if options.find_batch:
        for cell in dict.fromkeys(cell for cell in cells if cell.batch == cells[0].batch):
            print_search(console, *process.find_batch(cell, options.find_batch, on_result))
        return
    for cell in cells:
        on_result(process.measure(cell))


def _details(console: Console, process: ModelBench, model: str, options: BenchOptions, out: Path) -> list[Finding]:
    """Record the first cell in detail, and return the waits for the GPU as findings."""
    from framekiln.lab.findings import waits

    if not options.details().is_asked:
        return []
    cell = options.first_cell()
    details = process.details(cell, options.details(), out.absolute() / _DETAILS)
    for file in details.files:
        print_line(console, f"  recorded: {file}")
    for note in details.notes:
        print_line(console, f"  not recorded: {note}")
    return waits(f"{model}, {cell.title}", details.syncs)
