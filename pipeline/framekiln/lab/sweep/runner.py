"""Cells of a bench in a child process, which is replaced after a cell that ends it or fills the memory."""

import resource
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from framekiln.contract.errors import ConfigError
from framekiln.device import limit_memory
from framekiln.lab.measure.timed import MeasureOptions
from framekiln.lab.measure.tracing import DetailOptions, Details, record
from framekiln.lab.models.registry import BenchModel
from framekiln.lab.modules import UnsupportedError, attempt
from framekiln.lab.output.cells import Cell, CellResult
from framekiln.lab.output.results import ModelInfo
from framekiln.lab.samples import sample_of
from framekiln.lab.sweep.batch_search import Limits, SearchResult, search
from framekiln.lab.sweep.figures import measure_cell
from framekiln.planning.sample import Sample
from framekiln.runtime.recovery.captured_error import CapturedError
from framekiln.runtime.recovery.child_process import ChildDied, ChildProcess

_TIMEOUT_S = 3600.0  # s of one cell: max-autotune of a large model took minutes on an H200


class CellChild:
    """At most one child process, which holds an object and calls its methods."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None

    @classmethod
    def of(cls, held: object) -> Self:
        """Return a started one, for a block."""
        child = cls()
        child.start(held)
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def is_there(self) -> bool:
        """True if there is a child that no call has ended."""
        return self._process is not None

    def start(self, held: object, environment: Mapping[str, str] | None = None) -> None:
        """Start another child, which holds an object, with variables for its environment; end the one before."""
        self.end()
        self._process = ChildProcess(held, environment)

    def call(self, method: str, *arguments: object, timeout_s: float) -> Any:
        """Call a method of the child's object; return its value, its error or its death."""
        assert self._process is not None
        answer = self._process.call(method, *arguments, timeout_s=timeout_s)
        if isinstance(answer, ChildDied):
            self.end()
        return answer

    def end(self) -> None:
        if self._process is not None:
            self._process.__exit__()
        self._process = None


def reason_of(answer: ChildDied | CapturedError) -> str:
    """Return why a call gave no result, in one line."""
    if isinstance(answer, CapturedError):
        kind = "" if answer.kind == ConfigError.__name__ else answer.kind
        return ": ".join(filter(None, [kind, " ".join(answer.message.split())]))
    last = answer.last_lines.splitlines()[-1:] if answer.how.startswith("exit") else []
    return ": ".join([f"its process died ({answer.how})", *last])


class ModelBench(CellChild):
    """One model's child process, from the start of the block to its end."""

    def __init__(self, source: BenchModel, options: MeasureOptions) -> None:
        super().__init__()
        self._source, self._options = source, options

    def about(self) -> ModelInfo:
        """Return the model's facts. Raises ConfigError: it cannot be built."""
        answer = self.ask("about")
        if isinstance(answer, ChildDied | CapturedError):
            problem = f"The model {self._source.name!r} cannot be built: {reason_of(answer)}"
            raise ConfigError(problem, code="FK-BENCH-BUILD")
        return ModelInfo(
            name=self._source.name,
            weights=self._source.weights,
            params=answer["params"],
            parts=answer["parts"],
            batch=answer["axes"].get("batch") or 1,
        )

    def measure(self, cell: Cell) -> CellResult:
        """Return a cell's result, even after its process's death."""
        answer = self.ask("measure", cell)
        if isinstance(answer, ChildDied | CapturedError):
            self.end()
            blank = CellResult(cell=cell, model=self._source.name, outcome="error", why=reason_of(answer))
            if isinstance(answer, ChildDied) and answer.how == "SIGKILL":
                why = "the system ended the process (SIGKILL), as when memory runs out"
                return replace(blank, outcome="oom", why=why)
            return blank
        if answer.outcome == "oom":
            self.end()  # leftovers of a failed allocation would falsify later figures
        return answer

    def details(self, cell: Cell, options: DetailOptions, folder: Path) -> Details:
        """Return a cell's recordings, or why there are none."""
        answer = self.ask("details", cell, options, folder)
        if isinstance(answer, ChildDied | CapturedError):
            return Details(files=(), notes=(reason_of(answer),))
        assert isinstance(answer, Details)
        return answer

    def find_batch(self, cell: Cell, most: int, on_result: Callable[[CellResult], None]) -> SearchResult:
        """Measure batches of 1, 2, 4, ... until one does not fit or gains nothing, then bisect."""

        def attempt(batch: int) -> Sample:
            result = self.measure(replace(cell, batch=batch))
            on_result(result)
            return sample_of(result)

        options = self._options
        is_limited = options.device != "cpu" or options.memory_cap_gb is not None
        return search(attempt, Limits(most_batch=most, memory=is_limited))

    def ask(self, method: str, *arguments: object) -> Any:
        """Call a method of the child's `ModelProcess`."""
        if not self.is_there:
            self.start(ModelProcess(self._source, self._options))
        return self.call(method, *arguments, timeout_s=_TIMEOUT_S)


class ModelProcess:
    """One model in a process of its own, pickled before use."""

    def __init__(self, model: BenchModel, options: MeasureOptions) -> None:
        self._model, self._options, self._is_limited = model, options, False

    def measure(self, cell: Cell) -> CellResult:
        """Measure a cell; full memory and cells that cannot exist here are outcomes."""
        blank = CellResult(cell=cell, model=self._model.name, outcome="ok")
        return attempt(blank, lambda: measure_cell(self.model(), blank, self._options))

    def details(self, cell: Cell, options: DetailOptions, folder: Path) -> Details:
        try:
            prepared = self.model().prepare(cell, self._options.device)
        except UnsupportedError as error:
            return Details(files=(), notes=(str(error),))
        return record(prepared, f"{self._model.name}-{cell.title}", options, folder)

    def about(self) -> dict[str, Any]:
        return self.model().about()

    def model(self) -> BenchModel:
        """Return the model, built at the first use, within this process's memory limit."""
        if not self._is_limited:
            self._model.load()
            self._is_limited = True
            if (cap := self._options.memory_cap_gb) is not None and self._options.device != "cpu":
                limit_memory(cap)
            elif cap is not None:  # limit of this process's addresses beyond those mapped now
                mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                most = resource.getrlimit(resource.RLIMIT_AS)[1]
                resource.setrlimit(resource.RLIMIT_AS, (mapped + int(cap * 1e9), most))
        return self._model
