"""The connection to Ray: a running cluster, or a local Ray, even on a busy machine."""

import fcntl
import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
import ray.data  # sets up its loggers before `session` silences them
from ray.exceptions import AuthenticationError, RayError

from framekiln.contract.errors import FramekilnError, ResourceError, StartError
from framekiln.engine.ray import private
from framekiln.engine.ray.death_watch import interrupts_held, signals_kept
from framekiln.planning.processes.resources import Node, this_machine
from framekiln.planning.stage_building import own_folders

_TRIES = 3
_WORD_S = 15.0
_PREFIX = "framekiln-run-"
_LONGEST = 18  # letters of the parent: a socket's path has at most 107; we add 25, and Ray up to 64
_REMOVALS, _PAUSE_S = 20, 0.1  # two seconds to remove it; otherwise the next run does
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}


@contextmanager
def session(address: str | None, on_wait: Callable[[str], None] = lambda _: None) -> Iterator[list[Node]]:
    """Connect to Ray, start a local one without an address, and yield the machines.

    `on_wait` gets a sentence every 15 s until Ray answers, from another thread, and one for each start that failed.

    Raises ResourceError: no cluster answers at the address, or it refuses our token; StartError: a local Ray does not
    start, three times.
    """
    for name in ("ray", "ray.data"):  # we print the error that stops a run once
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if ray.is_initialized():  # shares the outer session
        yield _list_nodes()
        return
    private.prepare_settings(local=address is None)
    with ExitStack() as stack:
        connect = partial(_connect, on_wait)
        if address is None:
            stack.enter_context(private.bind_to_loopback())
            stack.enter_context(_start(connect, on_wait))
        else:
            _check_answers(address)
            try:
                connect({"address": address})
            except Exception as error:  # errors of many classes
                raise _explain_no_cluster(address, error) from error
        try:
            yield _list_nodes()
        finally:
            with interrupts_held():
                private.kill_services() if private.dead_services() else ray.shutdown()


def _start(connect: Callable[[Mapping[str, Any]], None], on_wait: Callable[[str], None]) -> ExitStack:
    """Start a local Ray, and return the stack that holds its folder."""
    for attempt in range(1, _TRIES + 1):
        try:
            with ExitStack() as stack:
                folder = stack.enter_context(private_folder())
                with private.our_start(interrupts_held):
                    connect(_make_arguments(f"{folder}/r"))  # in a folder of ours, since Ray's own is open to all users
                return stack.pop_all()
        except FramekilnError:  # no folder is writable
            raise
        except Exception as error:  # errors of many classes, a bare Exception among them
            cause = error
        if attempt < _TRIES:
            on_wait(f"Ray did not start ({_get_first_line(cause)}). Trying again, {attempt + 1} of {_TRIES}.")
    raise StartError(
        f"Ray did not start on this machine, {_TRIES} times in a row ({_get_first_line(cause)}). Run the same command "
        "again when the machine has less to do, or with --engine local.",
        code="FK-RAY-START",
    ) from cause


def _make_arguments(folder: str) -> dict[str, Any]:
    places, here = own_folders(), this_machine()
    os.environ["PYTHONPATH"] = os.pathsep.join(places)
    own = {"address": "local", "num_cpus": int(here.cpus), "num_gpus": int(here.gpus), "include_dashboard": False}
    return own | private.private_arguments(folder, places)


def _get_first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _connect(on_wait: Callable[[str], None], arguments: Mapping[str, Any]) -> None:
    private.take_command_line()
    with _hide_stderr(on_wait) as say, signals_kept(), _report_waiting(say):
        ray.init(**arguments, **_QUIET)
    private.silence_deaths()


@contextmanager
def _report_waiting(say: Callable[[str], None]) -> Iterator[None]:
    over, begun = threading.Event(), time.monotonic()

    def speak() -> None:
        while not over.wait(_WORD_S):
            with private.forks:
                say(f"Still waiting for Ray, after {time.monotonic() - begun:.0f} s.")

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _hide_stderr(on_wait: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Hide a line on the terminal: Ray's C++ core prints it before its log level applies.

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


def _check_answers(address: str) -> None:
    """Check that the port is open and accepts our token: Ray would try for minutes, or for ever."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdecimal()):
        return
    try:
        socket.create_connection((host.rpartition("/")[2] or "127.0.0.1", int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise _explain_no_cluster(address, error) from error
    if "/" not in host:
        try:
            private.ask_gcs(address)
        except AuthenticationError as error:
            raise ResourceError(
                f"The Ray cluster at {address!r} rejects this user's token, or its absence. Set "
                "RAY_AUTH_MODE=token, and put the cluster's token into ~/.ray/auth_token or RAY_AUTH_TOKEN.",
                code="FK-RAY-TOKEN",
            ) from error
        except RayError:
            pass  # it may be slow; Ray waits for it


def _explain_no_cluster(address: str, error: Exception) -> ResourceError:
    return ResourceError(
        f"No Ray cluster answers at {address!r} ({_get_first_line(error)}). Start one, or leave out --address.",
        code="FK-NO-CLUSTER",
    )


def _list_nodes() -> list[Node]:
    alive = [node for node in ray.nodes() if node["Alive"]]
    sizes = [(str(node["NodeManagerAddress"]), node["Resources"]) for node in alive]
    return [Node(name=name, cpus=size.get("CPU", 0.0), gpus=size.get("GPU", 0.0)) for name, size in sizes]


@contextmanager
def private_folder() -> Iterator[str]:
    """Yield a new folder that no other user can enter; Ray's default, /tmp/ray, is open to all.

    It lies in `RAY_TMPDIR` or the system's folder for temporary files, and is removed after the block.

    The folder is locked as long as this process lives. Unlocked folders, left by killed runs, are removed first.
    Process ids would not show this: containers with other ids may share the parent.

    Raises ResourceError: no such folder is writable, or its path is too long.
    """
    reasons = []
    for parent in dict.fromkeys([os.environ.get("RAY_TMPDIR"), os.environ.get("TMPDIR"), "/tmp", "/var/tmp"]):  # noqa: S108
        if parent and len(parent) <= _LONGEST:
            try:
                folder, lock = _lock_folder(parent)
            except OSError as error:
                reasons.append(f"{parent}: {error.strerror}")
                continue
            break
    else:
        raise ResourceError(
            f"Ray has no folder for its sockets ({'; '.join(reasons)}); set RAY_TMPDIR to a writable folder with a "
            f"path of at most {_LONGEST} letters.",
            code="FK-NO-TEMPORARY-FOLDER",
        )
    try:
        with suppress(OSError):
            for path in Path(parent).glob(f"{_PREFIX}*"):
                _remove_unlocked(path)
        yield folder
    finally:
        for _ in range(_REMOVALS):  # Ray's last processes may still write into it
            shutil.rmtree(folder, ignore_errors=True)
            if not Path(folder).exists():
                break
            time.sleep(_PAUSE_S)
        os.close(lock)


def _lock_folder(parent: str) -> tuple[str, int]:
    """Return a new folder and the descriptor with its lock. Another run may remove a folder before it is locked."""
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_SH)  # waits for another run that is removing the folder
            if Path(folder).exists():
                return folder, lock
            os.close(lock)


def _remove_unlocked(path: Path) -> None:
    with suppress(OSError):  # another user's folder
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
