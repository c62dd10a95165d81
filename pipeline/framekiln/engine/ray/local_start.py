"""The start of a local Ray, also on a machine with too much to do: it is waited for, and tried again."""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ray._private import ray_constants
from ray.job_config import JobConfig

from framekiln.contract.errors import FramekilnError, StartError
from framekiln.engine.ray.own_processes import WAIT, our_start
from framekiln.engine.ray.private_folder import private_folder
from framekiln.planning.processes.resources import this_machine
from framekiln.planning.stage_building import own_folders

_TRIES = 3
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_SETTINGS = {  # those of the user's are kept
    WAIT: "120",  # seconds; Ray's 30 are too few on a machine with much to do
    "RAY_worker_register_timeout_seconds": "300",  # Ray kills workers that start for 60 s, and starts others, for ever
    "RAY_prestart_worker_first_driver": "0",  # else `ray.init` waits for workers, and no signal or thread is heard
}


@contextmanager
def local_ray(connect: Callable[[Mapping[str, Any]], None], on_wait: Callable[[str], None]) -> Iterator[None]:
    """Start a local Ray, and keep its folder for the block.

    Args:
        connect: calls `ray.init` with the arguments that it is given.
        on_wait: gets a sentence for each start that failed.

    Raises:
        StartError: it does not start, three times.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    folder = Path(os.path.expanduser("~"))  # noqa: PTH111 - `Path.home` raises for a user without a home
    if not (folder / ".ray" / "auth_token").is_file() and not os.access(folder, os.W_OK):
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with _bind_to_loopback(), _start(connect, on_wait):
        yield


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or else its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _start(connect: Callable[[Mapping[str, Any]], None], on_wait: Callable[[str], None]) -> ExitStack:
    for attempt in range(1, _TRIES + 1):
        try:
            with ExitStack() as stack:
                folder = stack.enter_context(private_folder())
                with our_start():
                    connect(_make_arguments(f"{folder}/r"))  # inside ours: Ray opens its own to all users
                return stack.pop_all()
        except FramekilnError:  # there is no folder for it
            raise
        except Exception as error:  # of many classes, a bare one among them
            cause = error
        if attempt < _TRIES:
            on_wait(f"Ray did not start ({first_line(cause)}). Trying again, {attempt + 1} of {_TRIES}.")
    raise StartError(
        f"Ray did not start on this machine, {_TRIES} times in a row ({first_line(cause)}). Run the same command again "
        "when the machine has less to do, or with --engine local.",
        code="FK-RAY-START",
    ) from cause


@contextmanager
def _bind_to_loopback() -> Iterator[None]:
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


def _make_arguments(folder: str) -> dict[str, Any]:
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
    }
