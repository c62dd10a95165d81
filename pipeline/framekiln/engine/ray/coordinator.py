"""The coordinator of a run on Ray: an actor with the run's state."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray

from framekiln.engine.ray.logs import log_of
from framekiln.engine.ray.node_samplers import NodeSampler
from framekiln.engine.ray.prometheus import Exporter
from framekiln.engine.reporter import Reporter
from framekiln.engine.run_state import RunState
from framekiln.output.object_store import Store
from framekiln.planning.error_budget import Budgets
from framekiln.profiling.events import Reading, StepEvent


class Coordinator(RunState):
    """The run's state in an actor. It also samples its machine: another process would take a core two seconds."""

    def __init__(self, budgets: Budgets, store: Store | None = None) -> None:
        super().__init__(budgets)
        self._exporter = Exporter(store.run if store is not None else "")
        self._sampler: NodeSampler | None = None
        if store is not None and store.run:
            with suppress(Exception):  # a machine that cannot be sampled still works
                self._sampler = NodeSampler(store, self.add_event)

    def add_event(self, event: StepEvent | Reading) -> None:
        """Keep an event for the driver, and export it to Prometheus."""
        super().add_event(event)
        self._exporter.add(event)

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


@dataclass(frozen=True)
class RayReporter(Reporter):
    """A worker's connection to the coordinator.

    Ray wraps exceptions until their type is lost, so `fatal` sends them.
    """

    coordinator: Any

    def __call__(self, event: StepEvent) -> None:
        """Send an event."""
        self.coordinator.add_step.remote(event)

    def _ask(self, method: str, *arguments: object) -> Any:
        """Return the coordinator's answer.

        While a task waits in `ray.get`, Ray starts another one on its CPU, and both go on. Futures have no such effect.
        """
        return getattr(self.coordinator, method).remote(*arguments).future().result()

    def last_lines(self, worker: str) -> str:
        """Return the last lines on standard error of a dead process of this machine."""
        return log_of(worker)
