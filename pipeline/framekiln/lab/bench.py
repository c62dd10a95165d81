"""A bench from end to end: all combinations of the varied axes, model by model, each cell in a child process."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from framekiln.contract.errors import ConfigError, check_known
from framekiln.lab.findings import findings, load, waits
from framekiln.lab.measure.backends import BACKENDS
from framekiln.lab.measure.device_facts import bench_environment
from framekiln.lab.measure.precision import PRECISIONS
from framekiln.lab.measure.timed import MeasureOptions
from framekiln.lab.measure.tracing import DetailOptions, Details, function_of
from framekiln.lab.models.registry import BenchModel, find_model
from framekiln.lab.models.stage_model import stage_source
from framekiln.lab.output.cells import Cell, CellResult
from framekiln.lab.output.results import BenchFinding, BenchReport, ModelInfo, new_report
from framekiln.lab.sweep.batch_search import SearchResult
from framekiln.lab.sweep.runner import ModelBench
from framekiln.planning.manifest import PipelineFile

COMPILE_MODES = ("off", "default", "reduce-overhead", "max-autotune")
ModelGiven = str | Callable[..., Any]
"""A model's or a step's name, `package.module:factory`, or a factory itself (`lab.models.factory`)."""


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The values of each axis; one of each for a single cell."""

    batches: Sequence[int | None] = (None,)  # None: the model's own batch
    sizes: Sequence[int | None] = (None,)
    frames: Sequence[int | None] = (None,)
    precisions: Sequence[str] = ("fp32",)
    compile: Sequence[str] = ("off",)
    channels_last: Sequence[bool] = (False,)
    backends: Sequence[str] = ("torch",)

    def cells(self, own_batch: int = 1) -> list[Cell]:
        """Return all cells of a model; the batch varies fastest."""
        axes = self.sizes, self.frames, self.precisions, self.compile, self.channels_last
        names = "backend", "size", "frames", "precision", "compile", "channels_last", "batch"
        cells = (dict(zip(names, values, strict=True)) for values in product(self.backends, *axes, self.batches))
        return [Cell(**{**cell, "batch": cell["batch"] or own_batch}) for cell in cells]  # type: ignore[arg-type]

    def check(self) -> None:
        """Check the names of precisions and modes. Raises ConfigError if one is unknown."""
        for name in self.precisions:
            check_known(name, PRECISIONS, f"--precisions: there is no {name!r}.", code="FK-BENCH-PRECISION")
        for mode in self.compile:
            check_known(mode, COMPILE_MODES, f"--compile: there is no mode {mode!r}.", code="FK-BENCH-COMPILE")
        for name in self.backends:
            check_known(name, BACKENDS, f"--backends: there is no {name!r}.", code="FK-BENCH-BACKEND")


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """The measurements of each model."""

    axes: Axes
    measure: MeasureOptions
    details: DetailOptions
    find_batch: int = 0  # search batches up to this; 0: measure the axes' batches
    pipeline: PipelineFile  # with the steps that may be measured
    inputs: Sequence[str] = ()  # media for a step; none: the sample collection
    weights_dir: Path | None = None

    @property
    def first_cell(self) -> Cell:
        """The one cell that clips and Nsight measure; its batch is 1 unless the axes set it."""
        return self.axes.cells()[0]


BenchEvent = Sequence[BenchFinding] | ModelInfo | CellResult | SearchResult | Details
"""First findings that make all figures worthless; then each model, its cells, searches and recordings."""


class Bench:
    """The models of one bench, and the measurements so far."""

    def __init__(self, plan: BenchPlan, watch: Callable[[BenchEvent], None]) -> None:
        self.cells: list[CellResult] = []
        self._plan, self._watch = plan, watch
        settings = {"cold_cache": plan.measure.cold_cache, "memory_cap_gb": plan.measure.memory_cap_gb}
        self._environment = bench_environment(plan.measure.device) | settings | {"input": ", ".join(plan.inputs)}
        self._infos: dict[str, ModelInfo] = {}
        self._load, self._found = load(self._environment["others"]), list[BenchFinding]()

    def report(self) -> BenchReport:
        first = {cell.model: cell for cell in reversed(self.cells) if cell.outcome == "ok"}
        models = [info.with_figures(first.get(info.name)) for info in self._infos.values()]
        every = (*self._load, *findings(self.cells), *self._found)
        return new_report(self._environment, models=tuple(models), cells=tuple(self.cells), findings=every)

    def measure(self, models: Sequence[ModelGiven], folder: Path | None) -> None:
        """Measure all cells of all models; `folder` is for detailed recordings.

        Raises ConfigError: a model or a function is unknown, a model cannot be built, or the folder is missing.
        """
        plan = self._plan
        if plan.details.is_asked and folder is None:
            raise ConfigError("trace, cprofile and lines write files; give them a folder: out.", code="FK-BENCH-OPTION")
        if plan.details.lines:
            function_of(plan.details.lines)
        with recipes(models, plan.pipeline, plan.measure.device, plan.inputs, plan.weights_dir) as sources:
            self._watch(self._load)
            for source in sources:
                with ModelBench(source, plan.measure) as process:
                    self._infos[source.name] = info = process.about()
                    self._watch(info)
                    cells = plan.axes.cells(info.batch)
                    for cell in () if plan.find_batch else cells:
                        self._add(process.measure(cell))
                    alike = [cell for cell in cells if cell.batch == cells[0].batch] if plan.find_batch else []
                    for cell in dict.fromkeys(alike):
                        self._watch(process.find_batch(cell, plan.find_batch, self._add))
                    if folder is not None and plan.details.is_asked:
                        details = process.details(cells[0], plan.details, folder.absolute())
                        self._watch(details)
                        self._found += waits(f"{source.name}, {cells[0].title}", details.syncs)

    def _add(self, result: CellResult) -> None:
        self._watch(result)
        self.cells.append(result)


@contextmanager
def recipes(
    models: Sequence[ModelGiven], pipeline: PipelineFile, device: str, inputs: Sequence[str], weights_dir: Path | None
) -> Iterator[list[BenchModel]]:
    """Return the models, by names or factories; rows of steps are kept until the end of the block.

    `inputs` are media for a step; none: the sample collection. Raises ConfigError: a model is unknown.
    """
    with tempfile.TemporaryDirectory(prefix="framekiln-") as name:
        folder, sources = Path(name), list(inputs)
        if not sources and any(model in pipeline.steps for model in models if isinstance(model, str)):
            from framekiln.media.samples import make

            sources = [str(folder / "samples")]
            make(folder / "samples")
        yield [
            stage_source(model, sources, device, folder, weights_dir, pipeline=pipeline)
            if isinstance(model, str) and model in pipeline.steps  # a step wins over a model of the registry
            else find_model(model, pipeline, weights_dir)
            for model in models
        ]
