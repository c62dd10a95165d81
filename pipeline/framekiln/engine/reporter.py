"""A worker process's connection to its run's state, over whatever joins the two."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from framekiln.contract.errors import FramekilnError
from framekiln.profiling.events import StepEvent
from framekiln.runtime.recovery.attempt_log import PastAttempts


class Reporter(ABC):
    """Sends events without waiting, and waits for the answers of the attempt log. It is pickled with a group."""

    @abstractmethod
    def __call__(self, event: StepEvent) -> None:
        """Send an event."""

    @abstractmethod
    def _ask(self, method: str, *arguments: object) -> Any:
        """Return the answer of a method of the run's state; events that were sent before have arrived."""

    @abstractmethod
    def last_lines(self, worker: str) -> str:
        """Return the last lines on standard error of a dead worker; empty if there are none."""

    def begin(self, work: str, worker: str) -> PastAttempts:
        """See `AttemptLog`."""
        past: PastAttempts = self._ask("begin", work, worker)
        return past

    def note(self, work: str, call: str) -> None:
        """See `AttemptLog`."""
        self._ask("note", work, call)

    def end(self, work: str) -> None:
        """See `AttemptLog`."""
        self._ask("end", work)

    def check(self) -> None:
        """Raise the error that stops the run, if there is one."""
        if error := self._ask("error"):
            raise error

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Send our own errors to the driver as they are."""
        try:
            yield
        except FramekilnError as error:
            self._ask("fail", error)
            raise
