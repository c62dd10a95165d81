"""The coordinator of a run: an actor that keeps events, attempts and the fatal error of all workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ray

from framekiln.contract.errors import FramekilnError
from framekiln.engine.node_samplers import Sampler
from framekiln.engine.prometheus import Exporter
from framekiln.output.object_store import Store
from framekiln.planning.error_budget import Budgets
from framekiln.profiling.events import Reading, StepEvent
from framekiln.runtime.recovery.attempt_log import AttemptTable, PastAttempts


class Coordinator(AttemptTable):
    """The actor of a run that outlives its workers.

    It keeps their events for the driver, and their attempts for the processes that replace them. It also samples its
    machine: a separate process would take a core two seconds to start.
    """

    def __init__(self, budgets: Budgets, store: Store | None = None) -> None:
        super().__init__()
        self._events: list[StepEvent | Reading] = []
        self._exporter = Exporter(store.run if store is not None else "")
        self._sampler: Sampler | None = None
        if store is not None and store.run:
            with suppress(Exception):  # a machine that cannot be sampled still works
                self._sampler = Sampler(store, self.add_event)
        self._error: FramekilnError | None = None
        self._budgets = budgets

    def fail(self, error: FramekilnError) -> None:
        """Keep the error that stops the run: Ray wraps exceptions until their type is lost."""
        self._error = self._error or error

    def error(self) -> FramekilnError | None:
        """Return the error that stops the run; None without one."""
        return self._error

    def add_step(self, event: StepEvent) -> None:
        """Keep a step's event, and count its failures against the step's budget."""
        self.add_event(event)
        self._error = self._error or self._budgets.spend(event.step, event.rows, event.reasons)

    def add_event(self, event: StepEvent | Reading) -> None:
        """Keep an event for the driver, and export it to Prometheus."""
        self._events.append(event)
        self._exporter.add(event)

    def take(self) -> list[StepEvent | Reading]:
        """Return all events since the last call."""
        events, self._events = self._events, []
        return events

    def node(self) -> str:
        """Return the id of the machine that it samples."""
        return str(ray.get_runtime_context().get_node_id())

    def stop(self) -> None:
        """Write the last samples of its machine."""
        if self._sampler is not None:
            self._sampler.stop()


def start_coordinator(budgets: Budgets, store: Store | None = None) -> Any:
    """Start the coordinator in a process of its own, on any node; it reserves no CPU.

    If it dies, Ray restarts it empty: events since the last `take`, and attempts so far, are lost.
    """
    return ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Coordinator).remote(budgets, store)


def _answer(call: Any) -> Any:
    """Return the answer to a call.

    While a task waits in `ray.get`, Ray starts another one on its CPU, and both go on. Futures do not have that effect.
    """
    return call.future().result()


@dataclass(frozen=True)
class Reporter:
    """A worker's connection to the coordinator: sends events without waiting, and waits for its attempt log."""

    coordinator: Any

    def __call__(self, event: StepEvent) -> None:
        """Send an event."""
        self.coordinator.add_step.remote(event)

    def begin(self, work: str, worker: str) -> PastAttempts:
        """See `AttemptLog`."""
        past: PastAttempts = _answer(self.coordinator.begin.remote(work, worker))
        return past

    def note(self, work: str, call: str) -> None:
        """See `AttemptLog`."""
        _answer(self.coordinator.note.remote(work, call))

    def end(self, work: str) -> None:
        """See `AttemptLog`. The coordinator has all events that this process sent before."""
        _answer(self.coordinator.end.remote(work))

    def check(self) -> None:
        """Raise the error that stops the run, if there is one."""
        if error := _answer(self.coordinator.error.remote()):
            raise error

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Send our own errors to the driver before Ray wraps them."""
        try:
            yield
        except FramekilnError as error:
            _answer(self.coordinator.fail.remote(error))
            raise
