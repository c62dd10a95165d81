"""Metrics of each machine during a run: the coordinator samples its own, and an actor each other machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from framekiln.device.nvml import library
from framekiln.output.object_store import Store
from framekiln.profiling.events import GpuSample, Reading, worker_name
from framekiln.profiling.node_metrics import SAMPLE_SECONDS, NodeMetrics, to_line
from framekiln.profiling.record_log import NODES, Stream
from framekiln.profiling.stats.live import averaged

_READING_SECONDS = 1.0  # between two readings for the progress view, and two requests for the object store's size
_STOP_SECONDS = 5.0  # for the last lines; then it is ended without them


class Sampler:
    """A thread that writes its machine's metrics until it is stopped, and sends means to the coordinator."""

    def __init__(self, store: Store, send: Callable[[Reading], None]) -> None:
        self._send, self._gpus, self._sent = send, list[tuple[GpuSample, ...]](), time.monotonic()
        self._uses: list[float] = []
        self._machine = NodeMetrics(store.run, os.getppid(), library())  # a machine's workers are started by its raylet
        self._stream = Stream(store, NODES, worker_name())
        self._done, self._raylet = threading.Event(), _raylet()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="sampler")
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and write the last lines."""
        self._done.set()
        self._thread.join(timeout=_STOP_SECONDS)
        self._stream.flush(now=True)

    def _sample(self) -> None:
        self._store_gb, due = object_store_gb(*self._raylet), time.monotonic()
        while not self._done.is_set():
            sample = self._machine.read(self._store_gb)
            self._stream.add(partial(to_line, sample))
            self._send_means(sample)
            due = max(due + SAMPLE_SECONDS, time.monotonic())
            self._done.wait(max(0.0, due - time.monotonic()))

    def _send_means(self, sample: Mapping[str, Any]) -> None:
        """Send the means of the last second, once a second, and measure the object store."""
        self._gpus.append(tuple(sample["gpus"]))
        self._uses.append(sample["cpu_percent"])
        if time.monotonic() - self._sent >= _READING_SECONDS:
            gpus, use = tuple(averaged(self._gpus)), sum(self._uses) / len(self._uses)
            self._send(Reading(node=sample["node"], time=sample["time"], gpus=gpus, cpu_percent=use))
            self._gpus, self._uses, self._sent = [], [], time.monotonic()
            self._store_gb = object_store_gb(*self._raylet)


class Samplers:
    """The samplers of a run, on every machine that is alive at the start but the coordinator's, which has its own."""

    def __init__(self, store: Store, coordinator: Any) -> None:
        make: Any = ray.remote(num_cpus=0, max_restarts=-1)(Sampler)
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
    """Send a reading to the coordinator without waiting."""
    coordinator.add_event.remote(reading)


def object_store_gb(address: str, port: int) -> float | None:
    """Return the gigabytes in a machine's object store, by a private call to its raylet; None if that fails."""
    with suppress(Exception):
        from ray._private.internal_api import node_stats

        stats = node_stats(address, port, False)  # without a list of all objects
        return float(stats.store_stats.object_store_bytes_used) / 1e9
    return None


def _raylet() -> tuple[str, int]:
    """Return the address and port of this machine's raylet."""
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)
    return str(node["NodeManagerAddress"]), int(node["NodeManagerPort"])
