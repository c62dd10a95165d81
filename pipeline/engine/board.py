"""Where workers leave what the driver must know: samples as they come, and the error that must stop the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from pipeline.errors import FramemillError
from pipeline.sample import Sample


class Board:
    """Where workers leave their samples for the driver to take."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._error: FramemillError | None = None

    def fail(self, error: FramemillError) -> None:
        """Leave what must stop the run: Ray wraps exceptions until nobody can tell what they were."""
        self._error = self._error or error

    def error(self) -> FramemillError | None:
        """What must stop the run."""
        return self._error

    def add(self, sample: Sample) -> None:
        """Leave one."""
        self._samples.append(sample)

    def take(self) -> list[Sample]:
        """All since the last time."""
        taken, self._samples = self._samples, []
        return taken


def start_board() -> Any:
    """A board in a process of its own, on any node, that takes no CPU in the books."""
    return ray.remote(num_cpus=0)(Board).remote()


@dataclass(frozen=True)
class Reporter:
    """Sends samples to the board without waiting for it."""

    board: Any

    def __call__(self, sample: Sample) -> None:
        """Send one."""
        self.board.add.remote(sample)

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Hand our own errors to the driver before Ray wraps them."""
        try:
            yield
        except FramemillError as error:
            ray.get(self.board.fail.remote(error))
            raise
