"""A local Ray serves its own run only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray._private import services

from framekiln.contract.errors import StartError, UserError
from framekiln.engine.ray.death_watch import PARKED, ended
from framekiln.engine.ray.session import session
from framekiln.planning.processes.resources import Node

_RUN = """
import ray, sys
from framekiln.engine.ray.session import session
with session(None):
    print(ray.get_runtime_context().gcs_address, repr(ray._private.worker.global_worker.node.webui_url), flush=True)
    sys.stdin.read()
"""
_COMES_IN = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False); print('came in')"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, dict[str, str]]]:
    """The local Ray of another process: its address, its dashboard's, and the environment of its user."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ours |= {"HOME": str(tmp_path_factory.mktemp("ours")), "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN], env=ours, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    address, _, dashboard = run.stdout.readline().strip().partition(" ")
    yield address, dashboard, ours
    run.communicate(timeout=60)


@pytest.mark.heavy
@pytest.mark.slow
def test_nobody_else_gets_into_a_local_ray(other: tuple[str, str, dict[str, str]], tmp_path: Path) -> None:
    """Its ports are open to all users of the machine, and whoever may connect may run any code."""
    address, dashboard, ours = other
    command = [sys.executable, "-c", _COMES_IN, address]
    ours = ours | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # who knows no other address than loopback finds it there
    theirs, known = ours | {"HOME": str(tmp_path)}, ours | {"RAY_AUTH_MODE": "token"}
    stranger = subprocess.run(command, env=theirs, capture_output=True, text=True, timeout=120, check=False)
    friend = subprocess.run(command, env=known, capture_output=True, text=True, timeout=120, check=False)
    assert (stranger.returncode, stranger.stdout, friend.stdout.strip()) == (1, "", "came in"), friend.stderr
    assert dashboard in ("''", "None")


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder, with a short path, for that of a local Ray."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="t-"))
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def test_a_ray_that_does_not_start_is_tried_again_and_is_no_mistake_of_the_users(
    monkeypatch: pytest.MonkeyPatch, parent: Path
) -> None:
    """On a machine with too much to do, Ray gives its own processes up, with a bare exception."""
    folders, said = [], []

    def give_up(**arguments: Any) -> None:
        folders.append(arguments["_temp_dir"])
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr("ray.init", give_up)
    with pytest.raises(StartError) as error, session(None, said.append):
        pass
    assert error.value.code == "FK-RAY-START" and not isinstance(error.value, UserError)
    assert len(set(folders)) == 3 and len(said) == 2
    assert list(parent.iterdir()) == []


def test_a_ray_that_starts_slowly_is_waited_for_with_words_and_its_stderr_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    heard = threading.Semaphore(0)

    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr)
        heard.release()

    def start(**_: object) -> None:
        os.write(2, b"of Ray's core")
        assert heard.acquire(timeout=60) and heard.acquire(timeout=60)
        raise KeyboardInterrupt

    monkeypatch.setattr("ray.init", start)
    monkeypatch.setattr("framekiln.engine.ray.session._WORD_S", 0.01)
    with pytest.raises(KeyboardInterrupt), session(None, say):
        pass
    shown = capfd.readouterr().err
    assert shown.count("Still waiting for Ray") >= 2 and "core" not in shown


def test_no_setting_of_the_users_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def look(**_: object) -> None:
        seen.update(os.environ)
        raise KeyboardInterrupt

    monkeypatch.setattr("ray.init", look)
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "77")
    monkeypatch.delenv("RAY_worker_register_timeout_seconds", raising=False)
    with pytest.raises(KeyboardInterrupt), session(None):
        pass
    assert (seen["RAY_raylet_start_wait_time_s"], seen["RAY_worker_register_timeout_seconds"]) == ("77", "300")


_DIES = """
import sys
from pathlib import Path
import psutil
from ray._private import services
from framekiln.engine.ray.session import session
services.RAYLET_EXECUTABLE, said = sys.argv[1], []
with session(None, said.append) as (node,):
    (folder,) = Path(sys.argv[2]).iterdir()
    own = {child.pid for child in psutil.Process().children() if "--log_dir" in " ".join(child.cmdline())}
    print(node.cpus >= 1, len(own), folder, *said, flush=True)
"""


@pytest.mark.heavy
@pytest.mark.slow
def test_a_raylet_that_dies_while_it_starts_is_started_again_and_leaves_nothing(parent: Path, tmp_path: Path) -> None:
    """The first one leaves a process behind, as a raylet leaves its agents."""
    script = tmp_path / "raylet"
    script.write_text(
        f"#!/bin/sh\nif mkdir {tmp_path}/was; then sleep 600 & echo $! > {tmp_path}/left; exit 1; fi\n"
        f'exec {services.RAYLET_EXECUTABLE} "$@"\n'
    )
    script.chmod(0o755)
    ours = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _DIES, str(script), str(parent)]  # this process may be in a Ray already
    done = subprocess.run(command, env=ours, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    fits, own, folder, said = done.stdout.strip().split(" ", 3)
    assert (fits, own) == ("True", "2"), "one GCS and one raylet"
    assert said.count("raylet has ended") == said.count("Trying again") == 1
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int((tmp_path / "left").read_text())).wait(timeout=60)  # killed, and perhaps not yet gone
    assert not Path(folder).exists()


_WORKS = """
import ray
from framekiln.engine.ray.session import session
said = []
with session(None, said.append):
    print(ray.get(ray.remote(lambda: 1).remote()), sum("Trying again" in sentence for sentence in said))
"""


@pytest.mark.heavy
@pytest.mark.slow
def test_agents_that_start_slowly_are_not_waited_for(tmp_path: Path) -> None:
    """On a machine with much to do, these Python programs took more than the 15 s that a raylet gives them."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "if any(name in ' '.join(sys.orig_argv) for name in ('dashboard/agent.py', 'runtime_env/agent/main.py')):\n"
        "    time.sleep(100)\n"
    )
    ours = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-c", _WORKS]  # this process may be in a Ray already
    done = subprocess.run(command, env=ours, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.split() == ["1", "0"], done.stderr


@pytest.mark.heavy
@pytest.mark.slow
def test_a_cluster_that_refuses_the_token_is_one_sentence(other: tuple[str, str, dict[str, str]], tmp_path) -> None:
    """`ray.init` asks it for ever."""
    address, _, ours = other
    command = [sys.executable, "-m", "framekiln", "plan", "--address", address]
    wrong = {"HOME": str(tmp_path), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32}
    for theirs in (wrong, {"HOME": str(tmp_path)}):
        done = subprocess.run(command, env=ours | theirs, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 2 and "[FK-RAY-TOKEN]" in done.stderr, done.stderr


@pytest.mark.heavy
def test_a_local_ray_listens_on_loopback_only(shared_ray: list[Node]) -> None:
    ray.get(ray.remote(lambda: 1).remote())
    last, ports = ray.nodes()[0]["MetricsExportPort"], []
    until = time.monotonic() + 120
    while last not in {port.laddr.port for port in ports} and time.monotonic() < until:  # its agent starts by itself
        ports = []
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # Ray replaces idle workers
                ports += [port for port in child.net_connections("tcp") if port.status == "LISTEN"]
    assert shared_ray[0].name == "127.0.0.1" and len(ports) > 5
    assert {port.laddr.ip.removeprefix("::ffff:") for port in ports} <= {"127.0.0.1", "::1"}


@pytest.mark.heavy
def test_a_local_ray_lies_in_a_folder_that_no_other_user_can_enter(shared_ray: list[Node]) -> None:
    sockets = Path(ray._private.worker._global_node.get_sockets_dir_path())
    private = next(path for path in sockets.parents if path.stat().st_mode & 0o077 == 0)
    assert private.name.startswith("framekiln-run-") and list(sockets.iterdir())


@pytest.mark.heavy
def test_no_thread_of_a_dataset_is_waited_for_in_vain(shared_ray: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster, where Ray's own statistics are on by default, each run once lost half a minute to that."""
    import ray.data

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")  # Ray turns it off for a cluster of our own
    before = set(threading.enumerate())
    batches = iter(ray.data.range(4).iter_batches())
    with ended(batches):
        assert sum(len(batch["id"]) for batch in batches) == 4
    left = {thread.name for thread in set(threading.enumerate()) - before if thread.name not in PARKED}
    assert not left
