"""A worker process of the local engine: it does one piece of work at a time, and reports to its engine.

`python -m framekiln.engine.local.child NUMBER` is the process. NUMBER is the descriptor of the socket to the engine.
The messages are pickled; no other process has the socket.
"""

import ctypes
import faulthandler
import importlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from framekiln.contract.errors import OWN_CODE, FramekilnError
from framekiln.profiling.records import StepEvent
from framekiln.profiling.step_work import Recorder
from framekiln.runtime.recovery.attempt_log import Reporter
from framekiln.runtime.recovery.captured_error import capture

HOLD, DO = "hold", "do"  # messages to this process: keep a function by a key, do work
EVENT, ASK, DONE = "event", "ask", "done"  # messages from this process
LAST_LINES = "last_lines"  # a question not about the run's state
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of linux/prctl.h


class LocalReporter(Reporter):
    """A worker's connection to its engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def receive(self) -> Any:
        """Return the next message; EOFError where the engine has ended."""
        return cloudpickle.loads(self._connection.recv_bytes())

    def send(self, kind: str, *content: object) -> None:
        self._connection.send_bytes(cloudpickle.dumps((kind, *content)))

    def __call__(self, event: StepEvent) -> None:
        with self._lock:
            self.send(EVENT, event)

    def ask(self, method: str, *arguments: object) -> Any:
        with self._lock:
            self.send(ASK, method, arguments)
            return self.receive()

    def last_lines(self, worker: str) -> str:
        """Return the last lines that a dead worker of this engine wrote to standard error."""
        return str(self.ask(LAST_LINES, worker))


def _serve(report: LocalReporter) -> None:
    held: dict[str, Callable[[Any, LocalReporter], Iterable[object] | None]] = {}
    while True:
        try:
            kind, key, content = report.receive()
        except EOFError:
            return
        problem = ""
        try:
            if kind == HOLD:
                function, threads, paths = content
                sys.path[:] = dict.fromkeys([*paths, *sys.path])  # so that modules are found as in the engine
                os.environ["OMP_NUM_THREADS"] = str(threads)  # torch reads it when a stage imports torch
                held[key] = cloudpickle.loads(function)
                continue
            deque(held[key](content, report) or (), maxlen=0)  # no other process needs the packets
        except FramekilnError as error:
            report.ask("fail", error)
        except OWN_CODE as error:
            problem = capture(error).traceback
        report.send(DONE, problem)


if __name__ == "__main__":
    faulthandler.enable()
    importlib.import_module("framekiln.engine.group")  # needed by all work; imported while the run is planned
    with suppress(OSError, AttributeError):  # the kernel ends this process with the engine's; elsewhere its work does
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    with suppress(BrokenPipeError):
        _serve(LocalReporter(Connection(int(sys.argv[1]))))
    Recorder.end()
    os._exit(0)  # libraries of models may hang in their own shutdown
