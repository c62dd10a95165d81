"""Ray's own processes, started as parts of this one: without what nobody uses, and without Ray's short waits.

`ray.init` has no arguments for this, so that functions of Ray's are replaced while it starts.
"""

import inspect
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._private import parameter, services, utils
from ray.exceptions import RayError

from framekiln.engine.ray.services import dead_services
from framekiln.engine.ray.shutdown import interrupts_held

WAIT = "RAY_raylet_start_wait_time_s"

forks = threading.Lock()
"""Held while Ray forks, with Python code in the child: beside a thread that allocates, that can hang."""

_raylet: Any = ray._raylet  # compiled; its stub lacks most of it
_PORTS = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")
_NEEDED = ("gcs_server", "raylet")  # programs without which no start ends
_ANSWER_S = 5.0  # for one question to Ray's GCS, which Ctrl-C waits for
_PAUSE_S = 0.05  # Ray's own wait asks once a second

Process = subprocess.Popen[bytes]


@contextmanager
def our_start() -> Iterator[None]:
    """Start a local Ray in the block, as a part of this process. Where the block raises, no process of it is left.

    - Without its autoscaler and log monitor, which cost a second of start-up: nothing uses them.
    - In process groups of their own. Schedulers, `timeout` and terminals send their signals to a whole group, and once
      Ray's own processes have ended, its core ends this one without a message.
    - With our handler of SIGTERM: Ray's own would exit without a message.
    - With ports for its agents. Else its raylet waits for them, two Python programs, and after 15 s it dies.
    - With a wait for the raylet of `RAY_raylet_start_wait_time_s`, which ends when the raylet does. Ray waits 30 s.
    """
    own: list[Process] = []
    settings = dict(zip(_PORTS, _find_ports(len(_PORTS)), strict=True)) | {
        "no_monitor": True,
        "include_log_monitor": False,
    }
    replaced: tuple[tuple[Any, str, Any], ...] = (
        (parameter, "RayParams", partial(_call_with, settings, parameter.RayParams)),
        (services, "ConsolePopen", partial(_spawn, services.ConsolePopen, own)),
        (services, "start_raylet", partial(_start_raylet, services.start_raylet)),
        (services, "get_node", partial(_await_raylet, services.get_node, own)),
        (utils, "set_sigterm_handler", lambda _: None),
    )
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        try:
            yield
        except BaseException:
            with interrupts_held():
                _end(own)
            raise


def ask_gcs(address: str) -> Any:
    """Return a client of the GCS at host:port, which has answered.

    Raises:
        RayError: it has not, or refuses our token.
    """
    return _raylet.GcsClient(address=address)


def _find_ports(number: int) -> list[int]:
    """Return ports that nobody uses and that systems do not give out by themselves (Linux: from 32768 on).

    An agent that finds its port taken ends, and its raylet too.
    """
    free: list[int] = []
    for port in secrets.SystemRandom().sample(range(20_000, 30_000), 10_000):
        with socket.socket() as item, suppress(OSError):
            item.bind(("", port))
            free.append(port)
        if len(free) == number:
            return free
    raise OSError("no port from 20000 to 29999 is free")


def _call_with(settings: Mapping[str, Any], call: Callable[..., Any], **given: Any) -> Any:
    return call(**{**given, **settings})


def _spawn(popen: type[Process], own: list[Process], *args: Any, **options: Any) -> Process:
    """Start a process of Ray's in a group of its own, and remember it."""
    with forks:
        own.append(popen(*args, process_group=0, **options))
    return own[-1]


def _start_raylet(start: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Start the raylet. Ray does not tell it the third port of its agent, which is therefore written down as absent."""
    given = inspect.signature(start).bind(*args, **options).arguments
    _raylet.persist_port(given["session_dir"], given["node_id"], _raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME, -1)
    return start(*args, **options)


def _await_raylet(get_node: Callable[[str, str], Any], own: list[Process], gcs_address: str, node_id: str) -> Any:
    """Return what Ray knows of the new raylet, once it has registered.

    Raises:
        OSError: it has ended, or the wait has.
    """
    end = time.monotonic() + float(os.environ[WAIT])
    gcs = ask_gcs(gcs_address)
    while time.monotonic() < end:
        if ended := [
            name for process in own if (name := _name_program(process)) in _NEEDED and process.poll() is not None
        ]:
            raise ConnectionError(f"its process {ended[0]} has ended")
        with suppress(RayError):  # an answer that takes too long
            if node_id in {key.hex() for key in gcs.get_all_node_info(timeout=_ANSWER_S)}:
                return get_node(gcs_address, node_id)
        time.sleep(_PAUSE_S)
    raise TimeoutError(f"its raylet has not registered within {os.environ[WAIT]} s")


def _name_program(process: Process) -> str:
    return Path(process.args[0]).name  # type: ignore[index, arg-type]


def _end(own: list[Process]) -> None:
    """Kill what a failed start has left: Ray's processes, agents in their groups, and workers, their children."""
    workers = [child for process in own if process.poll() is None for child in psutil.Process(process.pid).children()]
    if not dead_services():  # else calls into Ray wait or end this process
        with suppress(Exception):  # Ray is broken
            ray.shutdown()
    ray._private.worker._global_node = None
    for process in own:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for worker in workers:
        with suppress(psutil.Error):
            worker.kill()
