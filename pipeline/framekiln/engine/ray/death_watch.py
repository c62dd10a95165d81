"""The end of a dataset, also by Ctrl-C, and of a run with processes that die or stand still while no work ends.

No thread is left in Ray's core when it is shut down. Ray's scheduler waits two seconds at most for its threads, and for
some not at all. A thread that is still inside the core while `ray.shutdown()` destroys it crashes the process, after
the message about the interruption.

Ray starts processes that died again without end, as on a machine with too little memory. The attempt log counts deaths
in set-ups and calls. A process that is killed while it imports or while it waits to hand on its packets, or the
coordinator with the log, is seen here only. So are Ray's own processes.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import ray

from framekiln.contract.errors import FramekilnError, SetupError
from framekiln.engine.ray.private import dead_services, list_workers
from framekiln.runtime.recovery.memory_pressure import Standstill, memory_full, more_memory

_JOIN_S = 30.0  # for a scheduler on a busy machine; then it is left alone
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PARKED = ("Prefetcher",)  # of Ray Data: it waits for work outside the core, and lives as long as the dataset


@contextmanager
def ended(batches: Any) -> Iterator[None]:
    """Close an iterator of batches after the block, and wait for every thread that was started in it."""
    before = set(threading.enumerate())
    try:
        yield
    finally:
        with interrupts_held():
            if not dead_services():  # else its threads wait for ever
                batches.close()
                end = time.monotonic() + _JOIN_S
                for thread in set(threading.enumerate()) - before:
                    if thread.name not in PARKED and not isinstance(thread, threading._DummyThread):  # of Ray's core
                        thread.join(max(0.0, end - time.monotonic()))


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ignore a second signal while the work that the first one stopped is cleaned up, in the main thread."""
    with signals_kept():
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                signal.signal(number, signal.SIG_IGN)
        yield


@contextmanager
def signals_kept() -> Iterator[None]:
    """Restore the handlers of signals that end a run after the block, in the main thread; Ray sets its own."""
    kept = {number: signal.getsignal(number) for number in _ENDING}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in kept.items():
                signal.signal(number, handler or signal.SIG_DFL)


_MOST_DEATHS = 10  # in a row; a lost machine with many workers counts once, as they had started before
_LEAST_S = 60.0  # without progress: of many processes that start at once, those that fit get time to end some work
_SECONDS = 2.0  # between two looks; one took 0.4 ms with two workers
_TITLE = "ray::MapBatches("  # of a task with steps; a model's process has "ray::MapWorker(MapBatches("


class DeathWatch:
    """A thread that stops a run without progress: its processes keep dying, or stand still for want of memory."""

    def __init__(self, stop: Callable[[FramekilnError], None], advances: Callable[[], int]) -> None:
        """Start it; `stop` ends the run from another thread, `advances` raises if the coordinator does not answer."""
        self._stop, self._advances, self._done = stop, advances, threading.Event()
        self._seen, self._since = -1, time.monotonic()  # advances at the last look, and the time of the last one
        self._known: frozenset[bytes] = frozenset()  # processes that had started before the run or at the last progress
        self._memory: dict[str, float] = {}  # MB seen last, by steps
        self._standstill = Standstill()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="deaths")
        self._thread.start()

    def close(self) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        with suppress(Exception):
            self._known = frozenset(list_workers())  # of earlier runs on this Ray; the coordinator may answer late
        while not self._done.wait(_SECONDS):
            with suppress(Exception):  # Ray is ending, or its own processes are gone; the run notices that by itself
                if dead_services():
                    self._stop(services_error())
                    return
                workers = list_workers()
                before = self._seen
                with suppress(ray.exceptions.RayError):  # the coordinator may be the one that is killed
                    self._seen = self._advances()
                if progress := self._seen != before:
                    self._since, self._known = time.monotonic(), frozenset(workers)
                deaths = sum(dead for key, dead in workers.items() if key not in self._known)
                if deaths:
                    self._measure()
                if deaths >= _MOST_DEATHS and time.monotonic() - self._since >= _LEAST_S:
                    self._stop(
                        SetupError(
                            f"{deaths} processes were killed one after the other, and no work was finished in between: "
                            f"{self._describe_memory()}. Probably memory ran out: {more_memory()}",
                            code="FK-PROCESSES-KILLED",
                        )
                    )
                    return
                if self._standstill.lasts(progress=progress):
                    self._measure()
                    self._stop(memory_full(self._describe_memory()))
                    for process, _ in _find_processes():
                        with suppress(psutil.Error):
                            process.kill()
                    return

    def _measure(self) -> None:
        for process, steps in _find_processes():
            with suppress(psutil.Error):
                self._memory[steps] = max(process.memory_info().rss / 1e6, self._memory.get(steps, 0.0))

    def _describe_memory(self) -> str:
        held = ", ".join(f"{steps} ({mb:.0f} MB when last seen)" for steps, mb in sorted(self._memory.items()))
        return held or "before they had imported anything"


def _find_processes() -> Iterator[tuple[psutil.Process, str]]:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            title = (process.cmdline() or [""])[0].replace("MapWorker(", "")
            if title.startswith(_TITLE):
                yield process, title.removeprefix(_TITLE).partition(")")[0]


def services_error() -> FramekilnError:
    """Return the error of a run without Ray's own processes: calls into Ray wait, or end this process."""
    return FramekilnError(
        f"Ray's own process {' and '.join(dead_services())} has ended, which no run survives; if memory ran "
        "out, the kernel's log (`dmesg`) says so. What is finished is kept, and the same command continues from there.",
        code="FK-RAY-STOPPED",
    )
