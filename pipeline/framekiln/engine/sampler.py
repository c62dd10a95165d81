"""Metrics of one machine during a run, four times a second."""

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from framekiln.device.nvml import library
from framekiln.output.object_store import Store
from framekiln.profiling.node_metrics import SAMPLE_SECONDS, NodeMetrics, to_line
from framekiln.profiling.record_log import NODES, Stream
from framekiln.profiling.records import GpuSample, Reading, worker_name
from framekiln.profiling.stats.live import averaged

_READING_SECONDS = 1.0  # between two readings for the progress view, and two requests for the object store's size
_STOP_SECONDS = 5.0  # for the last lines; then it is ended without them


class Sampler:
    """A thread that writes its machine's metrics until it is stopped, and sends means of each second."""

    def __init__(
        self,
        store: Store,
        send: Callable[[Reading], None],
        *,
        parent: int,
        object_store: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Start it; `parent` is the process that starts workers here, `object_store` returns the GB in Ray's store."""
        self._send, self._gpus, self._sent = send, list[tuple[GpuSample, ...]](), time.monotonic()
        self._uses: list[float] = []
        self._machine = NodeMetrics(store.run, parent, library())
        self._stream = Stream(store, NODES, worker_name())
        self._done, self._object_store = threading.Event(), object_store
        self._thread = threading.Thread(target=self._sample, daemon=True, name="sampler")
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and write the last lines."""
        self._done.set()
        self._thread.join(timeout=_STOP_SECONDS)
        self._stream.flush(now=True)

    def _sample(self) -> None:
        self._store_gb, due = self._object_store(), time.monotonic()
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
            self._store_gb = self._object_store()
