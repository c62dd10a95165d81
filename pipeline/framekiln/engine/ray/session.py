"""The connection to Ray: a local one, or a running cluster."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import ray
import ray.data  # sets its loggers up, so before `session` silences them
from ray._private import parameter, ray_constants, services, utils
from ray.job_config import JobConfig

from framekiln.contract.errors import ResourceError
from framekiln.engine.ray.private_folder import private_folder
from framekiln.engine.ray.services import dead_services, kill_services
from framekiln.engine.ray.shutdown import interrupts_held, signals_kept
from framekiln.planning.processes.resources import Node, this_machine
from framekiln.planning.stage_building import own_folders

_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_NO_USAGE_REPORTS = "RAY_DATA_USAGE_DISABLED"  # else Ray Data reports on each dataset, from a thread that never ends

_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}


@contextmanager
def session(address: str | None) -> Iterator[list[Node]]:
    """Connect to Ray, start a local one without an address, and yield the machines.

    Raises:
        ResourceError: no cluster answers at the address, or a local Ray does not start.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # else Ray's C++ core logs to the terminal
    for name in ("ray", "ray.data"):  # we print the error that stops a run, once
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if ray.is_initialized():  # inside another session: share it
        yield _nodes()
        return
    os.environ.setdefault(_NO_USAGE_REPORTS, "1")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of Ray's own statistics, with their tracebacks
    with ExitStack() as stack:
        if address is None:
            stack.enter_context(_on_loopback())
            stack.enter_context(_our_start())
            _make_token()
            # a folder inside the private one: Ray opens what it is given to all users of the machine
            arguments = _local_arguments(f"{stack.enter_context(private_folder())}/r")
        else:
            _check_answers(address)
            arguments = {"address": address, **_QUIET}
        ray._private.utils.get_entrypoint_name = _command_line
        try:
            with _without_stderr(), signals_kept():
                ray.init(**arguments)
            ray._private.worker.print_to_stdstream = _print_nothing  # it prints each death of a process on the terminal
        except Exception as error:  # of many classes: where it waits in vain for its own processes, a bare one
            raise _no_ray(address, error) from error
        try:
            yield _nodes()
        finally:
            with interrupts_held():
                kill_services() if dead_services() else ray.shutdown()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Bind a local Ray to 127.0.0.1, its own default on Windows and macOS, where it supports no clusters.

    Otherwise it listens on all addresses, whatever address it is given. A variable set by the user is kept.
    """
    if _CLUSTERS in os.environ:
        yield
        return
    before, os.environ[_CLUSTERS] = ray_constants.ENABLE_RAY_CLUSTER, "0"
    ray_constants.ENABLE_RAY_CLUSTER = False  # it was read when Ray was imported
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        del os.environ[_CLUSTERS]


@contextmanager
def _our_start() -> Iterator[None]:
    """Start a local Ray as a part of this process; `ray.init` has no arguments for it.

    - Without its autoscaler and log monitor, which cost a second of start-up: nothing uses them.
    - In a process group of its own. Schedulers, `timeout` and terminals send their signals to a whole group, and once
      Ray's own processes have ended, its core ends this one without a message.
    - With our handler of SIGTERM: Ray's own would exit without a message.
    """
    replaced: tuple[tuple[Any, str, Any], ...] = (
        (parameter, "RayParams", partial(parameter.RayParams, no_monitor=True, include_log_monitor=False)),
        (services, "ConsolePopen", partial(services.ConsolePopen, process_group=0)),
        (utils, "set_sigterm_handler", lambda _: None),
    )
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def _make_token() -> None:
    """Give a local Ray its token where Ray cannot write one into the home folder."""
    folder = Path(os.path.expanduser("~"))  # noqa: PTH111 - `Path.home` raises for a user without a home
    if not (folder / ".ray" / "auth_token").is_file() and not os.access(folder, os.W_OK):
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _command_line() -> str:
    """Return this process's command line for Ray's list of jobs; Ray's own refuses paths that are not UTF-8."""
    return " ".join(sys.argv).encode(errors="backslashreplace").decode()


@contextmanager
def _without_stderr() -> Iterator[None]:
    """Hide a line on the terminal: Ray's C++ core prints that its log level was set before the level holds."""
    sys.stderr.flush()
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _print_nothing(*_: object, **__: object) -> None:
    """Replace Ray's printing of messages from its raylets, which `log_to_driver` does not stop."""


def _check_answers(address: str) -> None:
    """Check that the port is open: Ray tries for minutes to reach a closed one."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        try:
            socket.create_connection((host.rpartition("/")[2] or "127.0.0.1", int(port)), timeout=10).close()
        except (OSError, ValueError) as error:
            raise _no_ray(address, error) from error


def _no_ray(address: str | None, error: Exception) -> ResourceError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    if address is None:
        return ResourceError(f"Ray does not start on this machine ({reason}).", code="FK-RAY-START")
    return ResourceError(
        f"No Ray cluster answers at {address!r} ({reason}). Start one, or leave out --address.", code="FK-NO-CLUSTER"
    )


def _nodes() -> list[Node]:
    alive = [node for node in ray.nodes() if node["Alive"]]
    sizes = [(str(node["NodeManagerAddress"]), node["Resources"]) for node in alive]
    return [Node(name=name, cpus=size.get("CPU", 0.0), gpus=size.get("GPU", 0.0)) for name, size in sizes]


def _local_arguments(folder: str) -> dict[str, Any]:
    # Ray puts the working directory first on its workers' paths. Marked as a client's, a job keeps the paths that it is
    # given. Workers insert each at the front: the last wins.
    places = own_folders()
    job = JobConfig(_client_job=True, _py_driver_sys_path=[str(Path.cwd()), *reversed(places)])
    os.environ["PYTHONPATH"] = os.pathsep.join(places)
    here = this_machine()
    return {
        "address": "local",
        "num_cpus": int(here.cpus),
        "num_gpus": int(here.gpus),
        "include_dashboard": False,
        "job_config": job,
        "_temp_dir": folder,
        **_QUIET,
    }
