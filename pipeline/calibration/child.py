"""A child process that measures one step, and the parent's end of it: whatever kills it, the parent hears of it.

`python -m pipeline.calibration.child NUMBER` is the child; NUMBER is the descriptor of the socket between the two, and
what goes over it is pickled. Only these two processes have it.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from types import TracebackType
from typing import IO, Any, Self

from pipeline.raised import let_go
from pipeline.trial import Died, how_it_ended

_LINES = 12  # of what the child said last


class Child:
    """One process that holds one object and answers calls of its methods."""

    def __init__(self, held: object, environment: Mapping[str, str]) -> None:
        """Start it.

        Args:
            held: what its methods are called of; it is pickled.
            environment: variables beside this process's own.
        """
        self._line, theirs = Pipe()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.calibration.child", str(theirs.fileno())],
                env={**os.environ, **paths, **environment},
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=(theirs.fileno(),),
            )
        with suppress(OSError):  # it has died already: the first question finds that out
            self._line.send(held)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.wait()
        self._line.close()
        self._said.close()

    def ask(self, method: str, *arguments: object, seconds: float) -> Any:
        """What a method of the held object returns, `Raised` where it raised, `Died` where the process did.

        A process that does not answer in time is killed.
        """
        try:
            self._line.send((method, arguments))
            if not self._line.poll(seconds):
                return self._ended("it hung")
            return self._line.recv()
        except (EOFError, OSError):
            return self._ended("")

    def _ended(self, how: str) -> Died:
        if how:
            self._process.kill()
        code = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        said = f"exit code {code}" if code > 0 else how_it_ended(code)
        return Died(how or said, "\n".join(lines[-_LINES:]))


def _serve(line: Connection) -> None:
    """Answer calls until the parent is gone."""
    faulthandler.enable()
    held = line.recv()
    while True:
        try:
            method, arguments = line.recv()
        except EOFError:
            return
        try:
            answer = getattr(held, method)(*arguments)
        except Exception as error:
            answer = let_go(error)
        line.send(answer)


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
