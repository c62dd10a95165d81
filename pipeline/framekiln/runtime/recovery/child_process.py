"""A child process that holds one object and calls its methods; the parent survives whatever kills the child.

`python -m framekiln.runtime.recovery.child_process NUMBER` is the child. NUMBER is the descriptor of the socket between
the two processes. Messages are pickled; no other process has the socket. The object's class may exist only in a
notebook or a script, so the object is pickled by value.
"""

import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Self

import cloudpickle

from framekiln.contract.errors import OWN_CODE
from framekiln.device.failures import is_end_of_process
from framekiln.device.watchdog import TIMEOUT_MARK, within
from framekiln.runtime.recovery.captured_error import BROKEN_GPU, CapturedError, capture

HUNG = "it hung"
"""`ChildDied.how` after the timeout of a call."""
_LINES = 12  # lines of the child's output kept at its death
_GRACE_S = 10.0  # s after the timeout, for a child that its own watchdog did not end
_NOT_READY = 70  # exit code of a child that could not load its object; EX_SOFTWARE of sysexits.h


@dataclass(frozen=True)
class ChildDied:
    """The result of a call that killed the child process."""

    how: str  # SIGSEGV, ...
    last_lines: str  # last lines of its output

    def explained(self, step: str) -> CapturedError:
        alone, is_hung = "even alone in a process of its own", self.how == HUNG
        died = f"the process died ({self.how}) while {step} worked on this, {alone}"
        message = f"{step} took longer than its `timeout_s` on this, {alone}" if is_hung else died
        return CapturedError(kind="Hung" if is_hung else "Died", message=message, traceback=self.last_lines)


class Child:
    """A process `python -m MODULE NUMBER`; NUMBER is the descriptor of its end of a socket for pickled messages."""

    def __init__(self, module: str, environment: Mapping[str, str], **options: Any) -> None:
        """Start the process; variables are added to this process's environment, `options` go to `Popen`."""
        self.connection, child_end = Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed where the process is ended
        paths = {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(child_end.fileno())],
                env={**os.environ, **paths, **environment},
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=(child_end.fileno(),),
                **options,
            )

    def send(self, message: Any) -> None:
        """Send a message. Raises OSError: the process has died."""
        self.connection.send_bytes(cloudpickle.dumps(message))

    def _read_output(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")


class ChildProcess(Child):
    """One child process, from the start of the block to its end."""

    def __init__(
        self, held: object, environment: Mapping[str, str] | None = None, *, with_descendants: bool = False
    ) -> None:
        """Start the child with a pickled object; variables are added to this process's environment.

        `with_descendants`: processes that it started end with it.
        """
        own = "framekiln.runtime.recovery.child_process"  # `__name__` differs when run as a script
        super().__init__(own, environment or {}, start_new_session=with_descendants)
        self._with_descendants = with_descendants
        with suppress(OSError):  # it has died already: the first call notices
            self.send(held)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the child, if it has not ended."""
        if self._with_descendants:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self.connection.close()
        self._output.close()

    def call(self, method: str, *arguments: object, timeout_s: float = 0.0) -> Any:
        """Return a method's result, `CapturedError` if it raised, or `ChildDied` if it killed the process.

        The process is killed after the timeout; 0: no timeout.
        """
        try:
            self.send((method, arguments, timeout_s))
            if not self.connection.poll(2 * timeout_s + _GRACE_S if timeout_s else None):
                self._process.kill()
                return ChildDied(HUNG, self._read_last_lines())
            return self.connection.recv()
        except (EOFError, OSError):
            return self._explain_death()

    def kill(self) -> None:
        """End the child from another thread, even during a call, which then returns `ChildDied`."""
        self._process.kill()

    def _explain_death(self) -> ChildDied:
        code = self._process.wait()
        if code == 1 and TIMEOUT_MARK in self._read_output():
            return ChildDied(HUNG, self._read_last_lines())
        if code >= 0:
            return ChildDied("it lost the GPU" if code == BROKEN_GPU else f"exit code {code}", self._read_last_lines())
        with suppress(ValueError):
            return ChildDied(signal.Signals(-code).name, self._read_last_lines())
        return ChildDied(f"signal {-code}", self._read_last_lines())

    def _read_last_lines(self) -> str:
        return "\n".join(self._read_output().strip().splitlines()[-_LINES:])


def _serve(connection: Connection) -> None:
    faulthandler.enable()
    try:
        held = connection.recv()
    except OWN_CODE:
        traceback.print_exc()
        sys.exit(_NOT_READY)
    while True:
        try:
            method, arguments, timeout_s = connection.recv()
        except EOFError:
            return
        try:
            with within(timeout_s):
                result = getattr(held, method)(*arguments)
            connection.send(result)
        except BaseException as error:
            if is_end_of_process(error):
                raise
            connection.send(capture(error))


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
