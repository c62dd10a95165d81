"""Metrics of each machine during a run: the coordinator samples its own, and an actor each other machine."""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from framekiln.engine.sampler import Sampler
from framekiln.output.object_store import Store
from framekiln.profiling.events import Reading

_STOP_SECONDS = 5.0  # for the last lines; then they are ended without them


class NodeSampler(Sampler):
    """The sampler of a machine of the cluster, whose raylet starts this process and the workers."""

    def __init__(self, store: Store, send: Callable[[Reading], None]) -> None:
        super().__init__(store, send, parent=os.getppid(), object_store=partial(_measure_store, *_find_raylet()))


class Samplers:
    """The samplers of a run, on every machine that is alive at the start but the coordinator's, which has its own."""

    def __init__(self, store: Store, coordinator: Any) -> None:
        make: Any = ray.remote(num_cpus=0, max_restarts=-1)(NodeSampler)
        sampled = ray.get(coordinator.node.remote())
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != sampled]
        places = [NodeAffinitySchedulingStrategy(node_id=node, soft=False) for node in nodes]
        send = partial(_send, coordinator)
        self._actors = [make.options(scheduling_strategy=place).remote(store, send) for place in places]

    def stop(self) -> None:
        """End all samplers."""
        with suppress(ray.exceptions.RayError):
            ray.wait(
                [actor.stop.remote() for actor in self._actors], num_returns=len(self._actors), timeout=_STOP_SECONDS
            )
        for actor in self._actors:
            with suppress(ray.exceptions.RayError):
                ray.kill(actor)


def _send(coordinator: Any, reading: Reading) -> None:
    coordinator.add_event.remote(reading)


def _measure_store(address: str, port: int) -> float | None:
    """Return the gigabytes in a machine's object store, by a private call to its raylet; None if that fails."""
    with suppress(Exception):
        from ray._private.internal_api import node_stats

        stats = node_stats(address, port, False)  # without a list of all objects
        return float(stats.store_stats.object_store_bytes_used) / 1e9
    return None


def _find_raylet() -> tuple[str, int]:
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)
    return str(node["NodeManagerAddress"]), int(node["NodeManagerPort"])
