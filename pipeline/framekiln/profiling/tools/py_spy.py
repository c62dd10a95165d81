"""py-spy beside a step's process: a flame graph of its Python code.

The process starts py-spy, detached, at its first call. Otherwise Ray would end py-spy with the worker, before it writes
its graph. It writes when the process ends, when the run ends, or after `SECONDS`.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from framekiln.contract.errors import ConfigError
from framekiln.contract.stage import Stage
from framekiln.output.object_store import Store
from framekiln.profiling.tools.torch_profiler import FAILED, StageCall

SECONDS = 120  # s; 12,000 samples, more than a flame graph needs
_RATE = 100  # samples a second, py-spy's own default
_ANY_TRACER = (0x59616D61, -1)  # prctl's PR_SET_PTRACER and PR_SET_PTRACER_ANY, from linux/prctl.h
_WRITE_S = 10.0  # s to write a graph
_STUCK_S = 30  # s after its duration py-spy is killed: it may wait for a crashed process
_NO_SAMPLE = "Samples: 0 "  # in its last line if the process waited, or each sample failed
_TRIAL_S = 20.0  # s for the check

_ASLEEP = "import ctypes, time; ctypes.CDLL(None).prctl(0x59616D61, -1, 0, 0, 0); print(1, flush=True); time.sleep(60)"


def check() -> None:
    """Check that py-spy is installed and may read other processes. Raises ConfigError: it is missing or forbidden."""
    tool = _find_tool()
    if tool is None:
        raise ConfigError("--py-spy needs py-spy, which is not installed: pip install py-spy", code="FK-PY-SPY-MISSING")
    with subprocess.Popen([sys.executable, "-c", _ASLEEP], stdout=subprocess.PIPE) as asleep:
        assert asleep.stdout is not None
        asleep.stdout.readline()
        reason = _find_refusal([tool, "dump", "--pid", str(asleep.pid)])
        asleep.kill()
    if reason:
        raise ConfigError(
            f"--py-spy may not look into processes here ({reason}); run as root, or in a container with "
            "--cap-add SYS_PTRACE.",
            code="FK-PY-SPY-FORBIDDEN",
        )


def _find_refusal(command: list[str]) -> str:
    try:
        trial = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_S, check=False)
    except subprocess.TimeoutExpired:
        return f"it did not answer within {_TRIAL_S:.0f} s"
    lines = trial.stderr.strip().splitlines() or ["it gave no reason"]
    return lines[0].rstrip(".") if trial.returncode else ""


class PySpy:
    """A profiler that starts py-spy at the first call."""

    def __init__(self, store: Store, name: str) -> None:
        self._path, self._attached = store.folder / name, False

    def __call__(self, stage: Stage, call: StageCall) -> Any:  # noqa: ARG002
        if not self._attached:
            self._attached = True
            with suppress(Exception):
                attach(self._path)
        return call()


def attach(path: Path) -> None:
    """Start py-spy on this process; `path`: the graph's path without its ending."""
    tool = _find_tool()
    path.parent.mkdir(parents=True, exist_ok=True)
    if tool is None:
        Path(f"{path}{FAILED}").write_text(f"py-spy is not installed on {socket.gethostname()}: pip install py-spy")
        return
    with suppress(Exception):  # only Linux has this restriction
        ctypes.CDLL(None).prctl(*_ANY_TRACER, 0, 0, 0)
    target = ["--pid", str(os.getpid()), "--output", f"{path}.svg"]
    command = [tool, "record", *target, "--rate", str(_RATE), "--duration", str(SECONDS)]
    if limit := shutil.which("timeout"):
        command = [limit, "--signal=INT", f"--kill-after={_STUCK_S}", str(SECONDS + _STUCK_S), *command]
    script = '"$@" >"$0.log" 2>&1 &'  # the shell ends at once and leaves py-spy without a parent
    subprocess.run(["sh", "-c", script, str(path), *command], start_new_session=True, check=False)


def finish(store: Store, folder: str) -> None:
    """Stop the run's py-spies on this machine so that they write, and write a reason for each missing graph."""
    mine = f"-{store.run}-{socket.gethostname()}-"
    place = store.folder / folder
    logs = [path for path in (place.glob("*.log") if place.is_dir() else ()) if mine in path.name]
    graphs = {str(log.with_suffix(".svg")) for log in logs}
    every = psutil.process_iter(["name", "cmdline"])
    spies = [one for one in every if one.info["name"] == "py-spy" and graphs.intersection(one.info["cmdline"] or ())]
    for spy in spies:
        with suppress(psutil.Error):
            spy.send_signal(signal.SIGINT)
    for spy in psutil.wait_procs(spies, timeout=_WRITE_S)[1]:
        with suppress(psutil.Error):
            spy.kill()
    for log in logs:
        graph = log.with_suffix(".svg")
        lines = [line for line in log.read_text().splitlines() if line.strip()] or ["-"]
        if _NO_SAMPLE in lines[-1]:
            graph.unlink(missing_ok=True)  # such graphs show an error in place of functions
        if not graph.exists():
            Path(f"{log.with_suffix('')}{FAILED}").write_text(f"py-spy wrote nothing ({lines[-1].rstrip('.')}).")
        log.unlink(missing_ok=True)


def _find_tool() -> str | None:
    return shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
