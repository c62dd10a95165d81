"""A connection to Ray: a local one of our own, or a running cluster."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants

from pipeline.engine.ending import interrupts_held
from pipeline.errors import ResourceError
from pipeline.machines import Node, this_machine

_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_TELLS_NOBODY = "RAY_DATA_USAGE_DISABLED"  # else Ray Data reports on each dataset, from a thread that never ends


@contextmanager
def session(address: str | None) -> Iterator[list[Node]]:
    """A connection to Ray: a local one of our own, or a running cluster. Yields the machines.

    Raises:
        ResourceError: there is no cluster at the address.
    """
    os.environ.setdefault(
        "RAY_BACKEND_LOG_LEVEL", "fatal"
    )  # Ray's C++ core writes notes on its own doings to the terminal
    for name in ("ray", "ray.data"):  # what stops a run is told once, by us
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if ray.is_initialized():  # inside another session: share it
        yield _nodes()
        return
    os.environ.setdefault(_TELLS_NOBODY, "1")
    with ExitStack() as stack:
        if address is None:
            stack.enter_context(_on_loopback())
        try:
            if address is not None:
                _check_answers(address)
            with _without_stderr():
                ray.init(**_init_arguments(address))
        except (OSError, RuntimeError, ValueError) as error:
            raise ResourceError(
                f"No Ray cluster answers at {address!r} ({_first_line(error)}); start one, or leave out --address."
            ) from error
        try:
            yield _nodes()
        finally:
            with interrupts_held():
                ray.shutdown()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Keep a Ray of our own to 127.0.0.1, as it does by itself where it knows no clusters: on Windows and on a Mac.

    Otherwise it listens on all addresses, whatever address it is given. Who sets the variable decides.
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
def _without_stderr() -> Iterator[None]:
    """Ray's C++ core says on the terminal that its level of logging was set, before that level holds."""
    sys.stderr.flush()
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _check_answers(address: str) -> None:
    """Ray tries for minutes to reach a port that nobody listens on; ask first."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.rpartition("/")[2] or "127.0.0.1", int(port)), timeout=10).close()


def _nodes() -> list[Node]:
    alive = [node for node in ray.nodes() if node["Alive"]]
    sizes = [(str(node["NodeManagerAddress"]), node["Resources"]) for node in alive]
    return [Node(name=name, cpus=size.get("CPU", 0.0), gpus=size.get("GPU", 0.0)) for name, size in sizes]


def _init_arguments(address: str | None) -> dict[str, Any]:
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is not None:
        return {"address": address, **quiet}
    roots = [str(Path(__file__).resolve().parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys(root for root in roots if root)
    )  # this checkout, also in its workers
    here = this_machine()
    return {
        "address": "local",
        "num_cpus": int(here.cpus),
        "num_gpus": int(here.gpus),
        "include_dashboard": False,
        **quiet,
    }


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
