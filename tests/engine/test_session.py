"""A local Ray serves its own run only."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import ray

from framekiln.contract.errors import ResourceError
from framekiln.engine.ray.session import session
from framekiln.engine.ray.shutdown import PARKED, ended

_RUN = """
import ray, sys
from framekiln.engine.ray.session import session
with session(None):
    print(ray.get_runtime_context().gcs_address, repr(ray._private.worker.global_worker.node.webui_url), flush=True)
    sys.stdin.read()
"""
_COMES_IN = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False); print('came in')"


@pytest.mark.heavy
@pytest.mark.slow
def test_nobody_else_gets_into_a_local_ray(tmp_path: Path) -> None:
    """Its ports are open to all users of the machine, and whoever may connect may run any code."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ours |= {"HOME": str(tmp_path / "ours"), "PYTHONPATH": str(Path(__file__).parents[2])}
    (tmp_path / "ours").mkdir()
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN], env=ours, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    address, _, dashboard = run.stdout.readline().strip().partition(" ")
    try:
        command = [sys.executable, "-c", _COMES_IN, address]
        ours |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # who knows no other address than loopback finds it there
        theirs, known = ours | {"HOME": str(tmp_path)}, ours | {"RAY_AUTH_MODE": "token"}
        stranger = subprocess.run(command, env=theirs, capture_output=True, text=True, timeout=120, check=False)
        friend = subprocess.run(command, env=known, capture_output=True, text=True, timeout=120, check=False)
    finally:
        run.communicate(timeout=60)
    assert (stranger.returncode, stranger.stdout, friend.stdout.strip()) == (1, "", "came in"), friend.stderr
    assert dashboard in ("''", "None")


def test_a_ray_that_does_not_start_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with too much to do, Ray gives its own processes up after 30 s."""

    def give_up(**_: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr("ray.init", give_up)
    with pytest.raises(ResourceError) as error, session(None):
        pass
    assert error.value.code == "FK-RAY-START"


@pytest.mark.slow
def test_a_local_ray_listens_on_loopback_only() -> None:
    with session(None) as (node,):
        ports = []
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # Ray replaces idle workers
                ports += [port for port in child.net_connections("tcp") if port.status == "LISTEN"]
        assert node.name == "127.0.0.1" and len(ports) > 5
        assert {port.laddr.ip.removeprefix("::ffff:") for port in ports} <= {"127.0.0.1", "::1"}


@pytest.mark.slow
def test_a_local_ray_lies_in_a_folder_that_no_other_user_can_enter() -> None:
    with session(None):
        sockets = Path(ray._private.worker._global_node.get_sockets_dir_path())
        private = next(path for path in sockets.parents if path.stat().st_mode & 0o077 == 0)
        assert private.name.startswith("framekiln-run-") and list(sockets.iterdir())


@pytest.mark.heavy
@pytest.mark.slow
def test_no_thread_of_a_dataset_is_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster, where Ray's own statistics are on by default, each run once lost half a minute to that."""
    with session(None):
        import ray.data

        monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")  # Ray turns it off for a cluster of our own
        before = set(threading.enumerate())
        batches = iter(ray.data.range(4).iter_batches())
        with ended(batches):
            assert sum(len(batch["id"]) for batch in batches) == 4
        left = {thread.name for thread in set(threading.enumerate()) - before if thread.name not in PARKED}
    assert not left
