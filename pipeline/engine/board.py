"""Where workers leave what must outlive them: samples, the journal of what they do, the error that stops the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ray

from pipeline.budget import Budgets
from pipeline.engine.sampler import Sampler
from pipeline.errors import FramemillError
from pipeline.journal import Past, Records
from pipeline.sample import Sample
from pipeline.storage import Store


class Board(Records):
    """Where workers leave their samples for the driver to take, and what they are at work on for whoever comes next.

    It watches its machine too: another process for that takes a core two seconds to start.
    """

    def __init__(self, budgets: Budgets, store: Store | None = None) -> None:
        super().__init__()
        self._sampler: Sampler | None = None
        if store is not None and store.run:
            with suppress(Exception):  # a machine that cannot be watched still has work done on it
                self._sampler = Sampler(store)
        self._samples: list[Sample] = []
        self._error: FramemillError | None = None
        self._budgets = budgets

    def fail(self, error: FramemillError) -> None:
        """Leave what must stop the run: Ray wraps exceptions until nobody can tell what they were."""
        self._error = self._error or error

    def error(self) -> FramemillError | None:
        """What must stop the run."""
        return self._error

    def add(self, sample: Sample) -> None:
        """Leave one."""
        self._samples.append(sample)
        self._error = self._error or self._budgets.spend(sample)

    def take(self) -> list[Sample]:
        """All since the last time."""
        taken, self._samples = self._samples, []
        return taken

    def node(self) -> str:
        """The id of the machine that it watches."""
        return str(ray.get_runtime_context().get_node_id())

    def stop(self) -> None:
        """Write down the last of what it saw."""
        if self._sampler is not None:
            self._sampler.stop()


def start_board(budgets: Budgets, store: Store | None = None) -> Any:
    """A board in a process of its own, on any node, that takes no CPU in the books.

    One that dies is started anew and has forgotten everything, which costs samples, and the blame for deaths so far.
    """
    return ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Board).remote(budgets, store)


@dataclass(frozen=True)
class Reporter:
    """Sends samples to the board without waiting for it; a journal, for whose answers it does wait."""

    board: Any

    def __call__(self, sample: Sample) -> None:
        """Send one."""
        self.board.add.remote(sample)

    def begin(self, work: str, worker: str) -> Past:
        """See `Journal`."""
        past: Past = ray.get(self.board.begin.remote(work, worker))
        return past

    def note(self, work: str, call: str) -> None:
        """See `Journal`."""
        ray.get(self.board.note.remote(work, call))

    def end(self, work: str) -> None:
        """See `Journal`. All samples that this process has sent are on the board by then."""
        ray.get(self.board.end.remote(work))

    def check(self) -> None:
        """Raise what must stop the run, if anything must."""
        if error := ray.get(self.board.error.remote()):
            raise error

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Hand our own errors to the driver before Ray wraps them."""
        try:
            yield
        except FramemillError as error:
            ray.get(self.board.fail.remote(error))
            raise
