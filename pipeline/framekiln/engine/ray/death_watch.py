"""The end of a dataset, also by Ctrl-C, and of a run with processes that keep dying or stand still.

No thread may be left in Ray's core at its shutdown. Ray's scheduler waits two seconds at most for its threads, and for
some not at all. If a thread is inside the core while `ray.shutdown()` destroys it, the process crashes after the
message about the interruption.

Ray restarts dead processes without end, for example if memory is short. The attempt log counts deaths in set-ups and
calls. Only this module sees other deaths: during imports, while packets wait to be handed on, of the coordinator with
its log, and of Ray's own processes.
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

_JOIN_S = 30.0  # s for a scheduler on a busy machine; then it is left alone
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PARKED = ("Prefetcher",)  # a thread of Ray Data: it waits for work outside the core, and lives as long as the dataset


@contextmanager
def ended(batches: Any) -> Iterator[None]:
    """Close an iterator of batches after the block, and wait for every thread started in the block."""
    before = set(threading.enumerate())
    try:
        yield
    finally:
        with interrupts_held():
            if not dead_services():  # otherwise its threads wait for ever
                batches.close()
                end = time.monotonic() + _JOIN_S
                for thread in set(threading.enumerate()) - before:
                    if thread.name not in PARKED and not isinstance(thread, threading._DummyThread):  # of Ray's core
                        thread.join(max(0.0, end - time.monotonic()))


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ignore a second signal while the main thread cleans up after the first."""
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


_MOST_DEATHS = 10  # deaths in a row; a lost machine with many workers counts once, as its workers started before
_LEAST_S = 60.0  # s without progress: of many processes that start at once, those that fit get time to finish work
_SECONDS = 2.0  # s between two checks; one took 0.4 ms with two workers
_TITLE = "ray::MapBatches("  # process title of a task with steps; a model's process has "ray::MapWorker(MapBatches("


class DeathWatch:
    """A thread that stops a run without progress: its processes keep dying, or memory is full."""

    def __init__(self, stop: Callable[[FramekilnError], None], advances: Callable[[], int]) -> None:
        """Start the thread; `stop` ends the run. `advances` counts progress; it raises if the coordinator is silent."""
        self._stop, self._advances, self._done = stop, advances, threading.Event()
        self._seen, self._since = -1, time.monotonic()  # advances at the last check, and its time
        self._known: frozenset[bytes] = frozenset()  # processes started before the run or at the last progress
        self._memory: dict[str, float] = {}  # MB at the last check, by steps
        self._standstill = Standstill()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="deaths")
        self._thread.start()

    def close(self) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        with suppress(Exception):
            self._known = frozenset(list_workers())  # processes of earlier runs on this Ray; the answer may be late
        while not self._done.wait(_SECONDS):
            with suppress(Exception):  # Ray is ending, or its own processes are gone; the run notices that itself
                if dead_services():
                    self._stop(services_error())
                    return
                workers = list_workers()
                before = self._seen
                with suppress(ray.exceptions.RayError):  # the coordinator may be the killed process
                    self._seen = self._advances()
                if progress := self._seen != before:
                    self._since, self._known = time.monotonic(), frozenset(workers)
                deaths = sum(dead for key, dead in workers.items() if key not in self._known)
                if deaths:
                    self._measure()
                if deaths >= _MOST_DEATHS and time.monotonic() - self._since >= _LEAST_S:
                    self._stop(
                        SetupError(
                            f"{deaths} processes in a row were killed without finished work in between: "
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
    """Return the error of a run after Ray lost its own processes. Then calls into Ray wait, or end this process."""
    return FramekilnError(
        f"Ray's own process {' and '.join(dead_services())} has ended, which no run survives; if memory ran "
        "out, the kernel's log (`dmesg`) says so. What is finished is kept, and the same command continues from there.",
        code="FK-RAY-STOPPED",
    )
