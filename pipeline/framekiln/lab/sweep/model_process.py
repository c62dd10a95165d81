"""The measurement of one model's cells in their child process."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

from framekiln.device import is_broken_gpu, is_out_of_memory, limit_memory, release_memory
from framekiln.lab.measure.details import DetailOptions, Details, record
from framekiln.lab.measure.figures import measure_cell
from framekiln.lab.measure.options import MeasureOptions
from framekiln.lab.measure.precision import UnsupportedError
from framekiln.lab.models.factory import one_line
from framekiln.lab.models.model import BenchModel, ModelRecipe
from framekiln.lab.output.cells import Cell, CellResult


class ModelProcess:
    """One model in a process of its own; it is pickled before use."""

    def __init__(self, recipe: ModelRecipe, options: MeasureOptions) -> None:
        self._recipe, self._options = recipe, options
        self._model: BenchModel | None = None

    def measure(self, cell: Cell) -> CellResult:
        """Measure a cell; memory that runs out and cells that do not exist here are outcomes."""
        blank = CellResult(cell=cell, model=self._recipe.name, outcome="ok")
        try:
            return measure_cell(self.model(), blank, self._options)
        except UnsupportedError as error:
            return replace(blank, outcome="unsupported", why=str(error))
        except Exception as error:
            if is_broken_gpu(error):
                raise
            full, why = is_out_of_memory(error), one_line(error)
        release_memory()
        return replace(blank, outcome="oom" if full else "error", why=why)

    def details(self, cell: Cell, options: DetailOptions, folder: Path) -> Details:
        """Record calls of a cell in detail."""
        try:
            prepared = self.model().prepare(cell, self._options.device)
        except UnsupportedError as error:
            return Details(files=(), notes=(str(error),))
        return record(prepared, f"{self._recipe.name}-{cell.title}", options, folder)

    def about(self) -> dict[str, Any]:
        """Return the model's facts; see `BenchModel`."""
        return self.model().about()

    def model(self) -> BenchModel:
        """Return the model, built at the first use, with the memory that this process may have."""
        if self._model is None:
            self._model = self._recipe.build()
            if self._options.memory_cap_gb is not None:
                _cap(self._options.memory_cap_gb, self._options.device)
        return self._model


def _cap(gigabytes: float, device: str) -> None:
    """Limit the memory of the device, or of this process's addresses beyond what it has mapped by now."""
    if device != "cpu":
        limit_memory(gigabytes)
        return
    with Path("/proc/self/statm").open() as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    limit = mapped + int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
