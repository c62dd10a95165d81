"""Metrics of one machine during a run, four times a second."""

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count

from framekiln.device.nvml import library
from framekiln.output.object_store import Store
from framekiln.profiling.node_metrics import SAMPLE_SECONDS, NodeMetrics, to_line
from framekiln.profiling.record_log import NODES, Stream
from framekiln.profiling.records import Reading, worker_name

_STORE_SAMPLES = 4  # samples between two requests for the object store's size
_STOP_SECONDS = 5.0  # s for the last lines; then the thread is left


class Sampler:
    """A thread that writes its machine's metrics until it is stopped, and sends samples to the progress display."""

    def __init__(
        self,
        store: Store,
        send: Callable[[Reading], None],
        *,
        parent: int,
        object_store: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Start; `parent`: the process that starts workers here. `object_store` returns the GB in Ray's store."""
        self._send, self._machine = send, NodeMetrics(store.run, parent, library())
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
        due = time.monotonic()
        for number in count():
            if number % _STORE_SAMPLES == 0:
                store_gb = self._object_store()
            sample = self._machine.read(store_gb)
            self._stream.add(partial(to_line, sample))
            told = {name: sample[name] for name in ("node", "time", "cpu_percent")}
            self._send(Reading(gpus=tuple(sample["gpus"]), **told))
            due = max(due + SAMPLE_SECONDS, time.monotonic())
            if self._done.wait(max(0.0, due - time.monotonic())):
                return
