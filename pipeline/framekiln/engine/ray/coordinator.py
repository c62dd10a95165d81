"""The coordinator of a run on Ray: an actor with the run's state, which also samples its machine and exports metrics.

Each other machine has an actor that samples it.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray.util.metrics import Counter, Gauge, Histogram
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from framekiln.engine.base import RunState, last_lines
from framekiln.engine.ray.private import log_folder, measure_store
from framekiln.engine.sampler import Sampler
from framekiln.output.object_store import Store
from framekiln.planning.error_budget import Budgets
from framekiln.profiling.export.live_metrics import BOUNDS, METRICS, Metric, observations
from framekiln.profiling.records import Event, Reading, StepEvent
from framekiln.runtime.recovery.attempt_log import Reporter

_STOP_SECONDS = 5.0  # s for the last lines; then samplers are killed


def _make_recorder(metric: Metric) -> Any:
    about = {"description": metric.what, "tag_keys": metric.labels}
    if metric.kind == "counter":
        return Counter(metric.name, **about).inc
    if metric.kind == "gauge":
        return Gauge(metric.name, **about).set
    return Histogram(metric.name, boundaries=list(BOUNDS), **about).observe


class NodeSampler(Sampler):
    """The sampler of a cluster machine. The machine's raylet starts this process and the workers."""

    def __init__(self, store: Store, send: Callable[[Reading], None]) -> None:
        here = ray.get_runtime_context().get_node_id()
        node = next(node for node in ray.nodes() if node["NodeID"] == here)
        size = partial(measure_store, str(node["NodeManagerAddress"]), int(node["NodeManagerPort"]))
        super().__init__(store, send, parent=os.getppid(), object_store=size)


class Samplers:
    """The samplers of a run, on every machine alive at the start; the coordinator samples its own."""

    def __init__(self, store: Store, coordinator: Any) -> None:
        make: Any = ray.remote(num_cpus=0, max_restarts=-1)(NodeSampler)
        sampled = ray.get(coordinator.node.remote())
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != sampled]
        places = [NodeAffinitySchedulingStrategy(node_id=node, soft=False) for node in nodes]

        def send(reading: Reading) -> None:
            coordinator.add_event.remote(reading)

        self._actors = [make.options(scheduling_strategy=place).remote(store, send) for place in places]

    def stop(self) -> None:
        with suppress(ray.exceptions.RayError):
            ray.wait(
                [actor.stop.remote() for actor in self._actors], num_returns=len(self._actors), timeout=_STOP_SECONDS
            )
        for actor in self._actors:
            with suppress(ray.exceptions.RayError):
                ray.kill(actor)


class Coordinator(RunState):
    """The run's state in an actor. It also samples its machine: a separate process would take two CPU seconds."""

    def __init__(self, budgets: Budgets, store: Store | None = None) -> None:
        super().__init__(budgets)
        self._name, self._record = store.run if store is not None else "", {m.name: _make_recorder(m) for m in METRICS}
        self._sampler: NodeSampler | None = None
        if store is not None and store.run:
            with suppress(Exception):  # a machine that cannot be sampled still works
                self._sampler = NodeSampler(store, self.add_event)

    def add_event(self, event: Event) -> None:
        """Keep an event for the driver, and export it through Ray's metrics agent, which Prometheus reads."""
        super().add_event(event)
        with suppress(Exception):  # there is no agent, or Ray rejects a metric
            for metric, value, labels in observations(event, self._name):
                self._record[metric.name](value, labels)

    def node(self) -> str:
        """Return the id of its machine."""
        return str(ray.get_runtime_context().get_node_id())

    def stop(self) -> None:
        """Stop sampling, and write the last samples."""
        if self._sampler is not None:
            self._sampler.stop()


def start_coordinator(budgets: Budgets, store: Store | None = None) -> Any:
    """Start the coordinator in a process on the driver's node, which reserves no CPU; other nodes may be lost.

    If it dies, Ray restarts it empty: events since the last `take` and the attempts are lost.
    """
    here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=True)
    make = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here)(Coordinator)
    return make.remote(budgets, store)


@dataclass(frozen=True)
class RayReporter(Reporter):
    """A worker's connection to the coordinator.

    Ray wraps exceptions and loses their type, so `fatal` sends them.
    """

    coordinator: Any

    def __call__(self, event: StepEvent) -> None:
        self.coordinator.add_step.remote(event)

    def ask(self, method: str, *arguments: object) -> Any:
        """Return the coordinator's answer.

        While a task waits in `ray.get`, Ray starts another one on its CPU, and both continue. Futures have no such
        effect.
        """
        return getattr(self.coordinator, method).remote(*arguments).future().result()

    def last_lines(self, worker: str) -> str:
        """Return the last lines on standard error of a dead process of this machine; empty if there are none."""
        host, _, pid = worker.rpartition(":")
        for path in log_folder().glob(f"worker-*-{pid}.err") if host == socket.gethostname() else ():
            return last_lines(path.read_text(encoding="utf-8", errors="replace"))
        return ""
