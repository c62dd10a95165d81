"""Processor seconds of a run by kind of process, sampled while it runs."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

_SAMPLED_SECONDS = 0.5
_KINDS = {  # by a word of the title or command line, the first match counts
    "raylet/raylet": "raylet",
    "gcs_server": "GCS",
    "autoscaler/_private/monitor": "autoscaler",
    "_AutoscalingCoordinator": "autoscaler",
    "_StatsActor": "statistics of Ray Data",
    "dashboard/": "dashboard",
    "DashboardAgent": "dashboard",
    "RuntimeEnvAgent": "environments",
    "runtime_env/agent": "environments",
    "log_monitor": "log monitor",
    "ray::Coordinator": "coordinator",
    "ray::": "workers",
    "default_worker.py": "workers",
    "multiprocessing": "workers",
}


def _kind(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    return next((kind for word, kind in _KINDS.items() if word in words), "others")


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def processor_seconds() -> Iterator[dict[str, float]]:
    """Fill a table with the processor seconds of this process ("driver") and its children during the block."""
    counted: dict[str, float] = defaultdict(float)
    last: dict[int, tuple[str, float]] = {}
    done, this = threading.Event(), psutil.Process()

    def sample() -> None:
        while not done.is_set():
            for child in this.children(recursive=True):
                with suppress(psutil.Error):
                    last[child.pid] = _kind(child), _seconds(child)  # an idle worker may become another kind
            done.wait(_SAMPLED_SECONDS)

    before, thread = time.process_time(), threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield counted
    finally:
        done.set()
        thread.join()
        counted["driver"] = time.process_time() - before
        for kind, seconds in last.values():
            counted[kind] += seconds
