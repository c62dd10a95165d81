"""Profilers around single calls of a stage.

A recorder writes each call when it has returned, since a worker may be ended at any moment. A recorder that fails
writes the reason into a file beside its recordings, and the call is made all the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from framekiln.contract.stage import Stage
from framekiln.output.object_store import Store

Call = Callable[[], Any]
CallProfiler = Callable[[Stage, Call], Any]
"""Makes a call of a stage, observes it and returns its result; its exceptions pass through."""

FIRST = 1  # calls that are not recorded: they load kernels and choose algorithms
FAILED = ".failed.txt"
"""Ending of a file with the reason why a profiler recorded nothing."""


class ProfiledStage:
    """A stage that is called through profilers, the first of them innermost."""

    def __init__(self, profilers: Sequence[CallProfiler]) -> None:
        self._profilers = profilers

    @property
    def is_recording(self) -> bool:
        """True if the next call is recorded, so that it must have none beside it."""
        return any(getattr(profiler, "records_next", False) for profiler in self._profilers)

    def __call__(self, stage: Stage, batch: pa.Table) -> Any:
        """Call the stage and return its result."""
        call: Call = partial(stage, batch)
        for profiler in self._profilers:
            call = partial(profiler, stage, call)
        return call()


class CallRecorder(ABC):
    """A profiler that records some calls, after the first."""

    def __init__(self, step: str, device: str, calls: int, store: Store, name: str) -> None:
        """Bind; `name` is the files' path without their endings."""
        self._step, self._device, self._calls, self._store, self._name = step, device, calls, store, name
        self._seen = 0

    @property
    def records_next(self) -> bool:
        """True until the last call to be recorded has been made."""
        return self._seen < FIRST + self._calls

    def __call__(self, stage: Stage, call: Call) -> Any:
        """See `CallProfiler`."""
        number = self._seen - FIRST + 1
        self._seen += 1
        if not 0 < number <= self._calls:
            return call()
        try:
            self.begin(stage)
        except Exception as error:
            self.fail(error)
            return call()
        try:
            return call()
        finally:
            try:
                self.end(number)
            except Exception as error:
                self.fail(error)

    @abstractmethod
    def begin(self, stage: Stage) -> None:
        """Start recording, before a call."""

    @abstractmethod
    def end(self, number: int) -> None:
        """Stop recording and write, after a call has returned or raised; numbers count from 1."""

    def save(self, ending: str, data: bytes) -> None:
        """Write a file."""
        self._store.write(f"{self._name}{ending}", data)

    def fail(self, error: object) -> None:
        """Write the reason why there is no recording, and record no more."""
        self._calls = 0
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        with suppress(Exception):
            self.save(FAILED, f"step {self._step} could not be recorded: {reason}.".encode())
