"""py-spy beside a step's process: a flame graph of what its Python code does, whoever wrote it.

It is started from inside the process at its first call, and left to itself: Ray ends a worker together with its
children, and then there would be no graph. It writes when the process ends, when the run does, or after `SECONDS`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from pipeline.device.recording import Call
from pipeline.errors import ConfigError
from pipeline.stage import Stage
from pipeline.storage import Store

SECONDS = 120  # at 100 samples a second more than enough for a picture
_RATE = 100  # samples a second, py-spy's own default
_ANY_TRACER = (0x59616D61, -1)  # prctl's PR_SET_PTRACER and PR_SET_PTRACER_ANY, from linux/prctl.h
_WRITES = 10.0  # seconds that it may take to draw a graph
_STUCK = (
    30  # seconds after which one that should have ended is killed: it was seen to wait for a process that had crashed
)
_TRIES = 20.0  # seconds for the trial

_ASLEEP = "import ctypes, time; ctypes.CDLL(None).prctl(0x59616D61, -1, 0, 0, 0); print(1, flush=True); time.sleep(60)"


def check() -> None:
    """Look whether py-spy is here and may look into processes.

    Raises:
        ConfigError: it is not, or may not.
    """
    tool = _tool()
    if tool is None:
        raise ConfigError("--py-spy needs py-spy, which is not installed: pip install py-spy")
    with subprocess.Popen([sys.executable, "-c", _ASLEEP], stdout=subprocess.PIPE) as asleep:
        assert asleep.stdout is not None
        asleep.stdout.readline()
        command = [tool, "dump", "--pid", str(asleep.pid)]
        tried = subprocess.run(command, capture_output=True, text=True, timeout=_TRIES, check=False)
        asleep.kill()
    if tried.returncode:
        said = (tried.stderr.strip().splitlines() or ["it gave no reason"])[0].rstrip(".")
        raise ConfigError(
            f"--py-spy may not look into processes here ({said}); run as root, or in a container with "
            "--cap-add SYS_PTRACE."
        )


class Spy:
    """Starts py-spy at the first call."""

    def __init__(self, store: Store, name: str) -> None:
        self._path, self._begun = Path(store.root.removeprefix("file://")) / name, False

    def __call__(self, stage: Stage, call: Call) -> Any:  # noqa: ARG002
        """See `device.recording.Calls`."""
        if not self._begun:
            self._begun = True
            with suppress(Exception):
                attach(self._path)
        return call()


def attach(path: Path) -> None:
    """Have py-spy look at this process from now on; `path` is its graph's, without the ending."""
    tool = _tool()
    path.parent.mkdir(parents=True, exist_ok=True)
    if tool is None:
        Path(f"{path}.failed.txt").write_text(f"py-spy is not installed on {socket.gethostname()}: pip install py-spy")
        return
    with suppress(Exception):  # on systems that know no such rule
        ctypes.CDLL(None).prctl(*_ANY_TRACER, 0, 0, 0)
    where = ["--pid", str(os.getpid()), "--output", f"{path}.svg"]
    command = [tool, "record", *where, "--rate", str(_RATE), "--duration", str(SECONDS)]
    if limit := shutil.which("timeout"):
        command = [limit, "--signal=INT", f"--kill-after={_STUCK}", str(SECONDS + _STUCK), *command]
    script = '"$@" >"$0.log" 2>&1 & echo $! >"$0.pid"'  # the shell ends at once, so that py-spy is nobody's child
    subprocess.run(["sh", "-c", script, str(path), *command], start_new_session=True, check=False)


def finish(store: Store, folder: str) -> None:
    """Have the run's py-spies on this machine write their graphs, and say of those that cannot why."""
    mine = f"-{store.run}-{socket.gethostname()}-"
    there = Path(store.root.removeprefix("file://")) / folder
    pids = [path for path in (there.glob("*.pid") if there.is_dir() else ()) if mine in path.name]
    for path in pids:
        _signal(int(path.read_text()), signal.SIGINT)
    until = time.monotonic() + _WRITES
    while time.monotonic() < until and any(_is_spy(int(path.read_text())) for path in pids):
        time.sleep(0.1)
    for path in pids:
        _signal(int(path.read_text()), signal.SIGKILL)
        log = path.with_suffix(".log")
        if not path.with_suffix(".svg").exists():
            said = [line for line in log.read_text().splitlines() if line.strip()]
            Path(f"{path.with_suffix('')}.failed.txt").write_text(
                f"py-spy wrote nothing ({said[-1] if said else '-'})."
            )
        for one in (path, log):
            one.unlink(missing_ok=True)


def _signal(pid: int, which: signal.Signals) -> None:
    if _is_spy(pid):
        with suppress(ProcessLookupError, psutil.Error):
            below = psutil.Process(pid).children()  # where `timeout` stands before it
            for one in (pid, *(child.pid for child in below)) if which is signal.SIGKILL else (pid,):
                os.kill(one, which)


def _is_spy(pid: int) -> bool:
    """Whether it is still there; the number may be another's by now."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return process.name() in ("py-spy", "timeout") and process.status() != psutil.STATUS_ZOMBIE
    return False


def _tool() -> str | None:
    """Beside this Python, or on the PATH."""
    return shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
