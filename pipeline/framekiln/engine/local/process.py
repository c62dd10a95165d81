"""One worker process of the local engine, as the engine sees it."""

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import IO, Any

import cloudpickle

from framekiln.engine.last_lines import last_lines
from framekiln.engine.local.child import DO, HOLD, PackedWork

_END_S = 5.0  # for its own end, once nobody talks to it any more


class WorkerProcess:
    """A process that works on one piece at a time."""

    def __init__(self) -> None:
        """Start it, in a process group of its own: terminals and schedulers send their signals to a whole group."""
        self.connection, child_end = Pipe()
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        paths = {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "framekiln.engine.local.child", str(child_end.fileno())],
                env={**os.environ, **paths, "OMP_NUM_THREADS": "1"},  # of NumPy; torch takes those of its work
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=(child_end.fileno(),),
                process_group=0,
            )
        self._held: set[str] = set()
        self.piece: Any = None  # what it works on; None while it is idle

    @property
    def name(self) -> str:
        """Return its name in the attempt log, as `worker_name` gives it there."""
        return f"{socket.gethostname()}:{self._process.pid}"

    def start(self, key: str, work: PackedWork, piece: Any) -> None:
        """Let it do a piece of some work, which each process gets once."""
        self.piece = piece
        with suppress(OSError):  # it has died; reading from it tells so
            if key not in self._held:
                self.send((HOLD, key, work))
                self._held.add(key)
            self.send((DO, key, piece))

    def send(self, message: Any) -> None:
        """Send a message or an answer."""
        self.connection.send_bytes(cloudpickle.dumps(message))

    def receive(self) -> Any:
        """Return its next message; EOFError or OSError where it has died."""
        return cloudpickle.loads(self.connection.recv_bytes())

    def end(self) -> str:
        """End it, and return the last lines of its output."""
        self.connection.close()
        try:
            self._process.wait(timeout=0 if self.piece is not None else _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._output as output:
            output.seek(0)
            return last_lines(output.read().decode(errors="replace"))
