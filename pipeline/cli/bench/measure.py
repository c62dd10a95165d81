"""The measurement of `framemill bench`: models one after the other, each cell printed as it ends."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pipeline.cli.bench.options import BenchOptions
from pipeline.cli.console import interruptible
from pipeline.reporting.terminal.console import print_line

if TYPE_CHECKING:
    from pipeline.bench.models.model import ModelRecipe
    from pipeline.bench.output.cells import CellResult
    from pipeline.bench.output.results import BenchReport, Finding, ModelInfo
    from pipeline.bench.sweep.runner import ModelBench

_DETAILS = "details"
"""Folder of recordings, under that of --out."""


def measured(console: Console, models: Sequence[str], options: BenchOptions, out: Path) -> BenchReport:
    """Measure all cells of all models.

    Raises:
        ConfigError: a model is unknown.
        SetupError: a model cannot be built.
    """
    from pipeline.bench.findings import findings
    from pipeline.bench.output.environment import bench_environment
    from pipeline.bench.output.results import new_report, with_figures
    from pipeline.bench.sweep.runner import ModelBench
    from pipeline.reporting.bench.terminal import print_model

    environment = bench_environment(options.measure().device)
    infos: list[ModelInfo] = []
    cells: list[CellResult] = []
    found: list[Finding] = []
    with interruptible("Interrupted. Nothing was written."), recipes(models, options) as sources:
        for source in sources:
            with ModelBench(source, options.measure()) as process:
                info = process.about()
                print_model(console, info)
                own = _cells(console, process, options)
                infos.append(with_figures(info, own))
                cells += own
                found += _details(console, process, source.name, options, out)
    every = (*findings(cells), *found)
    return new_report(environment, models=tuple(infos), cells=tuple(cells), findings=every)


@contextmanager
def recipes(models: Sequence[str], options: BenchOptions) -> Iterator[list[ModelRecipe]]:
    """Return the models by name; rows of steps are kept until the end of the block.

    Raises:
        ConfigError: a model is unknown.
    """
    from pipeline.bench.models.registry import find_model, is_step
    from pipeline.bench.models.stage_model import stage_source
    from pipeline.planning.manifest import read_pipeline

    pipeline, device = read_pipeline(None), options.measure().device
    with tempfile.TemporaryDirectory(prefix="framemill-") as name:
        folder = Path(name)
        inputs = options.input_ or []
        if not inputs and any(is_step(model, pipeline) for model in models):
            from samples.make import make

            inputs = [str(folder / "samples")]
            make(folder / "samples")
        yield [
            stage_source(model, inputs, device, folder, options.weights_dir)
            if is_step(model, pipeline)
            else find_model(model, pipeline, options.weights_dir)
            for model in models
        ]


def _cells(console: Console, process: ModelBench, options: BenchOptions) -> list[CellResult]:
    from pipeline.bench.sweep.runner import run_sweep
    from pipeline.reporting.bench.terminal import print_cell, print_search

    cells, show = options.axes().cells(), partial(print_cell, console)
    if options.find_batch:
        tried: list[CellResult] = []
        for cell in dict.fromkeys(cell for cell in cells if cell.batch == cells[0].batch):
            results, found = process.find_batch(cell, options.find_batch, show)
            print_search(console, results, found)
            tried += results
        return tried
    return list(run_sweep(process, cells, show))


def _details(console: Console, process: ModelBench, model: str, options: BenchOptions, out: Path) -> list[Finding]:
    """Record the first cell in detail, and return the waits for the GPU as findings."""
    from pipeline.bench.findings import waits

    if not options.details().is_asked:
        return []
    cell = options.first_cell()
    details = process.details(cell, options.details(), out.absolute() / _DETAILS)
    for line in (*details.files, *details.notes):
        print_line(console, f"  recorded: {line}")
    return waits(f"{model}, {cell.title}", details.syncs)
