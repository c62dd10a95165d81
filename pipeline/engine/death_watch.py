"""Processes that die before they compute anything, as on a machine with too little memory.

Ray starts them again without end. The attempt log counts deaths in set-ups and calls; a process that is killed while it
imports, or the coordinator with the log, is seen here only. So are Ray's own processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import ray
import ray._private.state
from ray.core.generated import common_pb2, gcs_pb2

from pipeline.contract.errors import FramemillError, SetupError
from pipeline.engine.ray_services import dead_services, services_error

_MOST_DEATHS = 20  # in a row; a lost machine with many workers counts once, as they had started before
_SECONDS = 2.0  # between two looks; one took 0.4 ms with two workers
_KILLED = {common_pb2.SYSTEM_ERROR, common_pb2.NODE_OUT_OF_MEMORY}
_TITLE = "ray::MapBatches("  # of a task with steps; a model's process has "ray::MapWorker(MapBatches("


class DeathWatch:
    """A thread that stops a run whose processes keep dying without any progress between."""

    def __init__(self, stop: Callable[[FramemillError], None], begun: Callable[[], int]) -> None:
        """Start it; `stop` ends the run from another thread, and `begun` raises if the coordinator does not answer."""
        self._stop, self._begun, self._done = stop, begun, threading.Event()
        self._attempts = -1  # at the last look
        self._known: frozenset[bytes] = frozenset()  # processes that had started before the run or at the last progress
        self._memory: dict[str, float] = {}  # MB seen last, by steps
        self._thread = threading.Thread(target=self._watch, daemon=True, name="deaths")
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        with suppress(Exception):
            self._known = frozenset(_workers())  # of earlier runs on this Ray; the coordinator may answer late
        while not self._done.wait(_SECONDS):
            with suppress(Exception):  # Ray is ending, or its own processes are gone; the run notices that by itself
                if dead_services():
                    self._stop(services_error())
                    return
                workers = _workers()
                if self._has_progress():
                    self._known = frozenset(workers)
                deaths = sum(dead for key, dead in workers.items() if key not in self._known)
                if deaths:
                    self._measure()
                if deaths >= _MOST_DEATHS:
                    self._stop(self._error(deaths))
                    return

    def _has_progress(self) -> bool:
        """Return whether a process has begun an attempt since the last look."""
        before = self._attempts
        with suppress(ray.exceptions.RayError):  # the coordinator may be the one that is killed
            self._attempts = self._begun()
        return self._attempts != before

    def _measure(self) -> None:
        """Note the memory of processes of steps on this machine."""
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                title = (process.cmdline() or [""])[0].replace("MapWorker(", "")
                if title.startswith(_TITLE):
                    steps = title.removeprefix(_TITLE).partition(")")[0]
                    self._memory[steps] = max(process.memory_info().rss / 1e6, self._memory.get(steps, 0.0))

    def _error(self, deaths: int) -> SetupError:
        total = memory_limit() / 1e9
        held = ", ".join(f"{steps} ({mb:.0f} MB when last seen)" for steps, mb in sorted(self._memory.items()))
        return SetupError(
            f"{deaths} processes were killed one after the other, and nothing was computed in between: "
            f"{held or 'before they had imported anything'}. Probably memory ran out: this machine lets its processes "
            f"use {total:.1f} GB together. Give it more, or compute fewer steps at once with --stages.",
            code="FM-PROCESSES-KILLED",
        )


def memory_limit() -> int:
    """Return the bytes of memory that this process and its children may use: the machine's, or its control group's."""
    limit = psutil.virtual_memory().total
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controller, path = line.split(":", 2)
            for file in (
                f"/sys/fs/cgroup{path}/memory.max",  # version 2
                f"/sys/fs/cgroup/{controller}{path}/memory.limit_in_bytes",  # version 1
            ):
                with suppress(OSError, ValueError):
                    limit = min(limit, int(Path(file).read_text(encoding="ascii")))
    return limit


def _workers() -> dict[bytes, bool]:
    """Return all processes that Ray has started for this driver's work, and whether each was killed."""
    mine = {ray._private.worker.global_worker.current_job_id.binary(), b""}
    table = ray._private.state.state._connect_and_get_accessor().get_worker_table()
    entries = [gcs_pb2.WorkerTableData.FromString(entry) for entry in table]
    return {
        entry.worker_address.worker_id: not entry.is_alive and entry.exit_type in _KILLED
        for entry in entries
        if entry.worker_type == common_pb2.WORKER and entry.job_id in mine
    }
