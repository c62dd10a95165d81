"""A worker process of the local engine: it does one piece of work after the other, and tells its engine.

`python -m framekiln.engine.local.child NUMBER` is the process. NUMBER is the descriptor of the socket to the engine.
The messages are pickled; no other process has the socket.
"""

import ctypes
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle

from framekiln.contract.errors import FramekilnError
from framekiln.engine.group import Group, Piece, decoded, setting_up
from framekiln.engine.run_state import Reporter
from framekiln.output.object_store import Store
from framekiln.planning.step import DecodeStep, Step
from framekiln.profiling.events import StepEvent
from framekiln.profiling.tools.profilers import ProfilerOptions
from framekiln.runtime.recovery.captured_error import capture
from framekiln.runtime.second_pass.second_pass import SecondPass, UnitRows

HOLD, DO = "hold", "do"  # messages to this process: an object to keep by a key, a piece of work for it
EVENT, ASK, DONE = "event", "ask", "done"  # and from it
LAST_LINES = "last_lines"  # a question that is not about the run's state
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of linux/prctl.h


class Link(Reporter):
    """The connection to the engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def receive(self) -> Any:
        """Return the next message; EOFError where the engine has ended."""
        return cloudpickle.loads(self._connection.recv_bytes())

    def send(self, kind: str, *content: object) -> None:
        """Send a message."""
        self._connection.send_bytes(cloudpickle.dumps((kind, *content)))

    def __call__(self, event: StepEvent) -> None:
        """Send an event."""
        with self._lock:
            self.send(EVENT, event)

    def _ask(self, method: str, *arguments: object) -> Any:
        with self._lock:
            self.send(ASK, method, arguments)
            return self.receive()

    def last_lines(self, worker: str) -> str:
        """Return the last lines on standard error of a dead worker of this engine."""
        return str(self._ask(LAST_LINES, worker))


@dataclass(frozen=True, kw_only=True)
class PackedWork:
    """A function of a piece of work and a link, as it travels to a process that was started before it was known."""

    content: bytes  # pickled
    threads: int  # for torch
    paths: tuple[str, ...] = field(default_factory=lambda: tuple(path or str(Path.cwd()) for path in sys.path))

    def unpack(self) -> Callable[[Any, Link], None]:
        """Return the function; modules are found where the engine's process finds them."""
        sys.path[:] = dict.fromkeys([*self.paths, *sys.path])
        os.environ["OMP_NUM_THREADS"] = str(self.threads)  # torch reads it when a stage imports it
        work: Callable[[Any, Link], None] = cloudpickle.loads(self.content)
        return work


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """First-pass work: all steps of a wave on pieces of units. The fields are those of `Group`."""

    key: str
    steps: tuple[Step, ...]
    store: Store
    decode: DecodeStep
    profilers: ProfilerOptions

    def __call__(self, work: tuple[Piece, ...], link: Link) -> None:
        """Decode the pieces, and write the parts of all steps."""
        for _ in decoded(Group(**vars(self), report=link, last=True), work):
            pass  # no other process needs the packets


class Tabling:
    """Second-pass work: one step, or the assembly of tables, on pieces of rows."""

    def __init__(self, step: SecondPass, occasion: str) -> None:
        self._step, self._occasion, self._is_set_up = step, occasion, False

    def __call__(self, piece: tuple[UnitRows, ...], link: Link) -> None:
        """Write the tables of one piece."""
        if self._step.processes is not None and not self._is_set_up:
            with setting_up(self._step.name, self._occasion, link):
                self._step.set_up()
            self._is_set_up = True
        self._step(piece, link, link)


def _serve(link: Link) -> None:
    held: dict[str, Callable[[Any, Link], None]] = {}
    while True:
        try:
            kind, key, content = link.receive()
        except EOFError:
            return
        problem = ""
        try:
            if kind == HOLD:
                held[key] = content.unpack()
                continue
            held[key](content, link)
        except FramekilnError as error:
            link._ask("fail", error)
        except Exception as error:
            problem = capture(error).traceback
        link.send(DONE, problem)


def _die_with_parent() -> None:
    """Let the kernel end this process when the engine's is killed; elsewhere it ends with its piece of work."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


if __name__ == "__main__":
    faulthandler.enable()
    _die_with_parent()
    with suppress(BrokenPipeError):
        _serve(Link(Connection(int(sys.argv[1]))))
    os._exit(0)  # libraries of models were seen to hang in their own shutdown
