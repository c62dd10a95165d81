"""The end of a dataset, also by Ctrl-C: no thread is left in Ray's core when it is shut down.

Ray's scheduler waits two seconds at most for its threads, and for some not at all. A thread that is still inside the
core while `ray.shutdown()` destroys it crashes the process, after the message about the interruption.
"""

import signal
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import ray
import ray._private.state

from framekiln.engine.ray.services import dead_services

_SECONDS = 30.0  # for a scheduler on a busy machine; then it is left alone
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POOL_CLASS = "MapWorker(MapBatches({}))"  # Ray Data's name for the processes of a pool
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
                end = time.monotonic() + _SECONDS
                for thread in set(threading.enumerate()) - before:
                    if thread.name not in PARKED and not isinstance(thread, threading._DummyThread):  # of Ray's core
                        thread.join(max(0.0, end - time.monotonic()))


def kill_model_processes(pools: Collection[str]) -> None:
    """Kill the processes with models that a failed run of this driver left, by the names of their pools.

    Ray ends them only once Python has collected the run's exception. Until then, they would keep CPUs and GPUs from the
    next run on the same Ray.
    """
    worker, classes = ray._private.worker.global_worker, {_POOL_CLASS.format(name) for name in pools}
    for key, actor in ray._private.state.actors(job_id=worker.current_job_id).items():
        if actor["ActorClassName"] in classes and actor["State"] != "DEAD":
            worker.core_worker.kill_actor(ray.ActorID.from_hex(key), True)  # it is not started again


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
