"""What each machine does, written down as long as a run lasts: by the board on its own, by a process on each other."""

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

from pipeline.nvml import library
from pipeline.sample import Card, Reading
from pipeline.storage import Store
from pipeline.telemetry.live import averaged
from pipeline.telemetry.nodes import SAMPLE_SECONDS, Machine, this_process, to_line
from pipeline.telemetry.streams import NODES, Stream

_STORE_SECONDS = 1.0  # between two questions to Ray, which go through its node manager
_TOLD_SECONDS = 1.0  # between two readings for those who watch
_STOP_SECONDS = 5.0  # for the last lines; then it is ended without them


class Sampler:
    """Samples its machine in a thread until it is told to stop; what its cards and cores do, the board hears too."""

    def __init__(self, store: Store, tell: Callable[[Reading], None]) -> None:
        self._tell, self._cards, self._told = tell, list[tuple[Card, ...]](), time.monotonic()
        self._uses: list[float] = []
        self._machine = Machine(store.run, os.getppid(), library())  # a machine's workers are started by its raylet
        self._stream = Stream(store, NODES, this_process())
        self._done, self._raylet = threading.Event(), _raylet()
        self._store_gb: float | None = None
        self._asked = -_STORE_SECONDS
        self._thread = threading.Thread(target=self._sample, daemon=True, name="sampler")
        self._thread.start()

    def stop(self) -> None:
        """Write the last lines."""
        self._done.set()
        self._thread.join(timeout=_STOP_SECONDS)
        self._stream.flush(now=True)

    def _sample(self) -> None:
        due = time.monotonic()
        while not self._done.is_set():
            sample = self._machine.read(self._object_store())
            self._stream.add(partial(to_line, sample))
            self._read(sample)
            due = max(due + SAMPLE_SECONDS, time.monotonic())
            self._done.wait(max(0.0, due - time.monotonic()))

    def _read(self, sample: Mapping[str, Any]) -> None:
        """Tell means of the last second."""
        self._cards.append(tuple(sample["gpus"]))
        self._uses.append(sample["cpu_percent"])
        if time.monotonic() - self._told >= _TOLD_SECONDS:
            cards, use = tuple(averaged(self._cards)), sum(self._uses) / len(self._uses)
            self._tell(Reading(node=sample["node"], time=sample["time"], cards=cards, cpu_percent=use))
            self._cards, self._uses, self._told = [], [], time.monotonic()

    def _object_store(self) -> float | None:
        if time.monotonic() - self._asked >= _STORE_SECONDS:
            self._asked, self._store_gb = time.monotonic(), object_store_gb(*self._raylet)
        return self._store_gb


class Samplers:
    """Those of a run, on every machine that is alive when they are started, but for the board's, which has one."""

    def __init__(self, store: Store, board: Any) -> None:
        make: Any = ray.remote(num_cpus=0, max_restarts=-1)(Sampler)
        watched = ray.get(board.node.remote())
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != watched]
        there = [NodeAffinitySchedulingStrategy(node_id=node, soft=False) for node in nodes]
        self._actors = [make.options(scheduling_strategy=one).remote(store, partial(_send, board)) for one in there]

    def stop(self) -> None:
        """End them."""
        with suppress(ray.exceptions.RayError):
            ray.wait(
                [actor.stop.remote() for actor in self._actors], num_returns=len(self._actors), timeout=_STOP_SECONDS
            )
        for actor in self._actors:
            with suppress(ray.exceptions.RayError):
                ray.kill(actor)


def _send(board: Any, reading: Reading) -> None:
    """From another machine; nobody waits for it."""
    board.read.remote(reading)


def object_store_gb(address: str, port: int) -> float | None:
    """Gigabytes in a machine's object store, as its raylet at an address tells: by a private way, or None."""
    with suppress(Exception):
        from ray._private.internal_api import node_stats

        told = node_stats(address, port, False)  # without a list of all objects
        return float(told.store_stats.object_store_bytes_used) / 1e9
    return None


def _raylet() -> tuple[str, int]:
    """Where this machine's raylet listens."""
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)
    return str(node["NodeManagerAddress"]), int(node["NodeManagerPort"])
