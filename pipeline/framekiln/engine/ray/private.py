"""Ray's private parts, each with the reason for its use. `tests/engine/test_ray_private.py` shows if one is gone.

A local Ray starts as a part of this process. `ray.init` has no arguments for this, so functions of Ray are replaced
while it starts.
"""

import inspect
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import psutil
import ray
import ray._private.state
from ray._private import parameter, ray_constants, services, utils, worker
from ray._private.internal_api import node_stats
from ray.core.generated import common_pb2, gcs_pb2
from ray.exceptions import RayError
from ray.job_config import JobConfig

forks = Lock()
"""Held while Ray forks with Python code in the child: a fork beside a thread that allocates can hang."""

_CLUSTERS, _WAIT = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_raylet_start_wait_time_s"
_SETTINGS = {  # a user's own values are kept
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # otherwise Ray's C++ core logs to the terminal
    "RAY_DATA_USAGE_DISABLED": "1",  # otherwise Ray Data reports on each dataset, from a thread that never ends
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # otherwise Ray prints tracebacks of its own statistics
}
_LOCAL_SETTINGS = {
    _WAIT: "120",  # seconds; Ray's 30 are too few on a machine with much to do
    "RAY_worker_register_timeout_seconds": "300",  # Ray kills workers that start for 60 s, and starts others, for ever
    "RAY_prestart_worker_first_driver": "0",  # otherwise `ray.init` waits for workers, deaf to signals and threads
}
_raylet: Any = ray._raylet  # compiled; its stub lacks most of it
_PORTS = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")
_NEEDED = (ray_constants.PROCESS_TYPE_RAYLET, ray_constants.PROCESS_TYPE_GCS_SERVER)  # no run survives their end
_KILLED = {common_pb2.SYSTEM_ERROR, common_pb2.NODE_OUT_OF_MEMORY}
_POOL_CLASS = "MapWorker(MapBatches({}))"  # Ray Data's name for the processes of a pool
_ANSWER_S = 5.0  # s for one question to Ray's GCS; Ctrl-C waits for it
_PAUSE_S = 0.05  # Ray's own wait asks once a second

Process = subprocess.Popen[bytes]


def prepare_settings(*, local: bool) -> None:
    """Set the environment variables that Ray reads, for a `local` Ray or for any."""
    for name, value in {**_SETTINGS, **(_LOCAL_SETTINGS if local else {})}.items():
        os.environ.setdefault(name, value)
    folder = Path(os.path.expanduser("~"))  # noqa: PTH111 - `Path.home` raises for a user without a home
    if local and not (folder / ".ray" / "auth_token").is_file() and not os.access(folder, os.W_OK):
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # Ray cannot write one there


def take_command_line() -> None:
    """Replace Ray's command line in its list of jobs, which rejects paths that are not UTF-8."""
    utils.get_entrypoint_name = lambda: " ".join(sys.argv).encode(errors="backslashreplace").decode()


def silence_deaths() -> None:
    """Replace the printing of raylets' messages, such as deaths, which `log_to_driver` does not stop."""
    worker.print_to_stdstream = lambda *_, **__: None


@contextmanager
def bind_to_loopback() -> Iterator[None]:
    """Bind a local Ray to 127.0.0.1, as Ray itself does on Windows and macOS, where it supports no clusters.

    Otherwise it listens on all addresses, whatever address it is given. A user's own variable is kept.
    """
    if _CLUSTERS in os.environ:
        yield
        return
    before, os.environ[_CLUSTERS] = ray_constants.ENABLE_RAY_CLUSTER, "0"
    ray_constants.ENABLE_RAY_CLUSTER = False  # already read when Ray was imported
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        del os.environ[_CLUSTERS]


def private_arguments(folder: str, places: Collection[str]) -> dict[str, Any]:
    """Return arguments of `ray.init` for its folder, and for workers that import from these `places`.

    Ray puts the working directory first on its workers' paths. A job marked as a client's keeps its paths. Workers
    insert each at the front, so the last one wins.
    """
    paths = [str(Path.cwd()), *reversed([*places])]
    return {"job_config": JobConfig(_client_job=True, _py_driver_sys_path=paths), "_temp_dir": folder}


@contextmanager
def our_start(hold_interrupts: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Start a local Ray in the block, as a part of this process. If the block raises, none of its processes is left.

    - Without its autoscaler and log monitor, which cost a second of start-up: nothing uses them.
    - In process groups of their own: schedulers, `timeout` and terminals send signals to a whole group. Once Ray's own
      processes have ended, its core ends this process without a message.
    - With our handler of SIGTERM: Ray's own exits without a message.
    - With ports for its agents, two Python programs. Otherwise its raylet waits for them, and dies after 15 s.
    - With a wait of `RAY_raylet_start_wait_time_s`, which ends when the raylet does. Ray itself waits 30 s.
    """
    own: list[Process] = []
    settings = {**dict(zip(_PORTS, _find_ports(len(_PORTS)), strict=True)), "no_monitor": True}
    settings["include_log_monitor"] = False
    make = parameter.RayParams
    replaced: tuple[tuple[Any, str, Any], ...] = (
        (parameter, "RayParams", lambda **given: make(**{**given, **settings})),
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
            with hold_interrupts():
                _end(own)
            raise


def ask_gcs(address: str) -> Any:
    """Return a client of the GCS at host:port. Raises RayError if it does not answer, or rejects our token."""
    return _raylet.GcsClient(address=address)


def dead_services() -> list[str]:
    """Return the names of a local Ray's needed processes that have ended; empty for a cluster."""
    node = worker._global_node
    started = node.all_processes if node is not None else {}
    return [name for name in _NEEDED if any(item.process.poll() is not None for item in started.get(name, ()))]


def kill_services() -> None:
    """Kill the rest of a local Ray: it would live for a minute, and end this process without a message."""
    left = psutil.Process().children(recursive=True)
    with suppress(Exception):  # Ray is broken
        worker._global_node.kill_all_processes(check_alive=False, allow_graceful=False)
    _kill(left)


def kill_model_processes(pools: Collection[str]) -> None:
    """Kill the processes with models that a failed run of this driver left, found by their pools' names.

    Ray ends them only after Python has collected the run's exception. Until then they would keep CPUs and GPUs from the
    next run on the same Ray.
    """
    driver, classes = worker.global_worker, {_POOL_CLASS.format(name) for name in pools}
    for key, actor in ray._private.state.actors(job_id=driver.current_job_id).items():
        if actor["ActorClassName"] in classes and actor["State"] != "DEAD":
            driver.core_worker.kill_actor(ray.ActorID.from_hex(key), True)  # not restarted


def list_workers() -> dict[bytes, bool]:
    """Return all processes that Ray started for this driver's work, and whether each was killed."""
    mine = {worker.global_worker.current_job_id.binary(), b""}
    table = ray._private.state.state._connect_and_get_accessor().get_worker_table()
    entries = [gcs_pb2.WorkerTableData.FromString(entry) for entry in table]
    return {
        entry.worker_address.worker_id: not entry.is_alive and entry.exit_type in _KILLED
        for entry in entries
        if entry.worker_type == common_pb2.WORKER and entry.job_id in mine
    }


def measure_store(address: str, port: int) -> float | None:
    """Return the gigabytes in a machine's object store, as its raylet says; None if the call fails."""
    with suppress(Exception):
        stats = node_stats(address, port, False)  # without a list of all objects
        return float(stats.store_stats.object_store_bytes_used) / 1e9
    return None


def log_folder() -> Path:
    """Return the log folder of this machine's workers; the usual one if Ray names none."""
    node = worker._global_node
    return Path(node.get_logs_dir_path()) if node else Path("/tmp/ray/session_latest/logs")  # noqa: S108 - Ray's


def _find_ports(number: int) -> list[int]:
    """Return unused ports that systems do not assign by themselves (Linux: those below 32768).

    An agent that finds its port taken ends, and so does its raylet.
    """
    free: list[int] = []
    for port in secrets.SystemRandom().sample(range(20_000, 30_000), 10_000):
        with socket.socket() as item, suppress(OSError):
            item.bind(("", port))
            free.append(port)
        if len(free) == number:
            return free
    raise OSError("no port from 20000 to 29999 is free")


def _spawn(popen: type[Process], own: list[Process], *args: Any, **options: Any) -> Process:
    with forks:
        own.append(popen(*args, process_group=0, **options))
    return own[-1]


def _start_raylet(start: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Start the raylet, with its agent's third port marked as absent: Ray does not report that one."""
    given = inspect.signature(start).bind(*args, **options).arguments
    _raylet.persist_port(given["session_dir"], given["node_id"], _raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME, -1)
    return start(*args, **options)


def _await_raylet(get_node: Callable[[str, str], Any], own: list[Process], gcs_address: str, node_id: str) -> Any:
    """Return Ray's facts of the new raylet once it has registered. Raises OSError: it has ended, or the wait has."""
    end = time.monotonic() + float(os.environ[_WAIT])
    gcs = ask_gcs(gcs_address)
    while time.monotonic() < end:
        for process in own:
            name = Path(process.args[0]).name  # type: ignore[index, arg-type]
            if name in _NEEDED and process.poll() is not None:
                raise ConnectionError(f"its process {name} has ended")
        with suppress(RayError):  # a slow answer
            if node_id in {key.hex() for key in gcs.get_all_node_info(timeout=_ANSWER_S)}:
                return get_node(gcs_address, node_id)
        time.sleep(_PAUSE_S)
    raise TimeoutError(f"its raylet has not registered within {os.environ[_WAIT]} s")


def _end(own: list[Process]) -> None:
    """Kill the rest of a failed start: Ray's processes, agents in their groups, and their child workers."""
    workers = [child for process in own if process.poll() is None for child in psutil.Process(process.pid).children()]
    if not dead_services():  # otherwise calls into Ray wait or end this process
        with suppress(Exception):  # Ray is broken
            ray.shutdown()
    worker._global_node = None
    for process in own:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    _kill(workers)


def _kill(processes: Collection[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
