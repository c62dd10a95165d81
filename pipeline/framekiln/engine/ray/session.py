"""The connection to Ray: a local one, or a running cluster."""

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import ray
import ray.data  # sets its loggers up, so before `session` silences them
from ray._private import utils, worker
from ray.exceptions import AuthenticationError, RayError

from framekiln.contract.errors import ResourceError
from framekiln.engine.ray.local_start import first_line, local_ray
from framekiln.engine.ray.own_processes import ask_gcs, forks
from framekiln.engine.ray.services import dead_services, kill_services
from framekiln.engine.ray.shutdown import interrupts_held, signals_kept
from framekiln.planning.processes.resources import Node

_WORD_S = 15.0
_NO_USAGE_REPORTS = "RAY_DATA_USAGE_DISABLED"  # else Ray Data reports on each dataset, from a thread that never ends

_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}


@contextmanager
def session(address: str | None, on_wait: Callable[[str], None] = lambda _: None) -> Iterator[list[Node]]:
    """Connect to Ray, start a local one without an address, and yield the machines.

    `on_wait` gets a sentence every 15 s until Ray answers, from another thread, and one for each start that failed.

    Raises:
        ResourceError: no cluster answers at the address, or it refuses our token.
        StartError: a local Ray does not start.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # else Ray's C++ core logs to the terminal
    for name in ("ray", "ray.data"):  # we print the error that stops a run, once
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if ray.is_initialized():  # inside another session: share it
        yield _list_nodes()
        return
    os.environ.setdefault(_NO_USAGE_REPORTS, "1")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of Ray's own statistics, with their tracebacks
    with ExitStack() as stack:
        connect = partial(_connect, on_wait)
        if address is None:
            stack.enter_context(local_ray(connect, on_wait))
        else:
            _check_answers(address)
            try:
                connect({"address": address})
            except Exception as error:  # of many classes
                raise _explain_no_cluster(address, error) from error
        try:
            yield _list_nodes()
        finally:
            with interrupts_held():
                kill_services() if dead_services() else ray.shutdown()


def _connect(on_wait: Callable[[str], None], arguments: Mapping[str, Any]) -> None:
    utils.get_entrypoint_name = _join_arguments
    with _hide_stderr(on_wait) as say, signals_kept(), _report_waiting(say):
        ray.init(**arguments, **_QUIET)
    worker.print_to_stdstream = _print_nothing  # it prints each death of a process on the terminal


@contextmanager
def _report_waiting(say: Callable[[str], None]) -> Iterator[None]:
    over, begun = threading.Event(), time.monotonic()

    def speak() -> None:
        while not over.wait(_WORD_S):
            with forks:
                say(f"Still waiting for Ray, after {time.monotonic() - begun:.0f} s.")

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _join_arguments() -> str:
    """Return this process's command line for Ray's list of jobs; Ray's own refuses paths that are not UTF-8."""
    return " ".join(sys.argv).encode(errors="backslashreplace").decode()


@contextmanager
def _hide_stderr(on_wait: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Hide a line on the terminal: Ray's C++ core prints that its log level was set before the level holds.

    Yields:
        `on_wait`, with stderr as it was.
    """
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)

    def say(sentence: str) -> None:
        os.dup2(kept, 2)
        on_wait(sentence)
        sys.stderr.flush()
        os.dup2(nowhere, 2)

    os.dup2(nowhere, 2)
    try:
        yield say
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _print_nothing(*_: object, **__: object) -> None:
    """Replace Ray's printing of messages from its raylets, which `log_to_driver` does not stop."""


def _check_answers(address: str) -> None:
    """Check that the port is open and takes our token: Ray tries for minutes, or for ever.

    Raises:
        ResourceError: it does not.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdecimal()):
        return
    try:
        socket.create_connection((host.rpartition("/")[2] or "127.0.0.1", int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise _explain_no_cluster(address, error) from error
    if "/" not in host:
        try:
            ask_gcs(address)
        except AuthenticationError as error:
            raise ResourceError(
                f"The Ray cluster at {address!r} refuses the token of this user, or its absence. Set "
                "RAY_AUTH_MODE=token, and put the cluster's token into ~/.ray/auth_token or RAY_AUTH_TOKEN.",
                code="FK-RAY-TOKEN",
            ) from error
        except RayError:
            pass  # it may be slow: Ray waits for it


def _explain_no_cluster(address: str, error: Exception) -> ResourceError:
    return ResourceError(
        f"No Ray cluster answers at {address!r} ({first_line(error)}). Start one, or leave out --address.",
        code="FK-NO-CLUSTER",
    )


def _list_nodes() -> list[Node]:
    alive = [node for node in ray.nodes() if node["Alive"]]
    sizes = [(str(node["NodeManagerAddress"]), node["Resources"]) for node in alive]
    return [Node(name=name, cpus=size.get("CPU", 0.0), gpus=size.get("GPU", 0.0)) for name, size in sizes]
