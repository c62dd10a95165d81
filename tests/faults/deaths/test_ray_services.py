"""Ray's own processes are killed, a node of its cluster is lost, and its usual folders are not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.faults import chaos

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.usefixtures("on_ray")]


@pytest.mark.parametrize("name", ["raylet", pytest.param("gcs_server", marks=pytest.mark.chaos)])
def test_ray_without_one_of_its_processes(undisturbed, tmp_path, name):
    out = tmp_path / "out"
    run = chaos.start(*undisturbed.words(out))
    assert chaos.wait_for(lambda: chaos.parts(out), run), run.communicate()
    family = psutil.Process(run.pid).children(recursive=True)
    (victim,) = [process for process in family if process.name() == name]
    victim.kill()
    code, printed, stderr = chaos.ended(run)
    assert code == 1 and name in stderr, printed + stderr
    assert stderr.endswith("[FK-RAY-STOPPED]\n") and len(stderr.splitlines()) == 1, stderr
    chaos.wait_for_end(family)
    code, printed, stderr = chaos.finish(*undisturbed.words(out, "--engine", "local"))
    assert code == 0, printed + stderr
    chaos.check_whole(out, undisturbed.out)


@pytest.fixture
def cluster():
    """A Ray of a head and two nodes with a core each, on this machine."""
    from ray.cluster_utils import Cluster

    store = {"object_store_memory": 100_000_000}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **store})
    for _ in range(2):
        made.add_node(num_cpus=1, **store)
    yield made
    made.shutdown()


def test_a_node_is_lost_with_all_its_processes(undisturbed, tmp_path, cluster):
    out = tmp_path / "out"
    run = chaos.start(*undisturbed.words(out, "--address", cluster.address))
    assert chaos.wait_for(lambda: len(chaos.parts(out)) >= 2 * chaos.FIRST_PASS, run), run.communicate()
    raylet = psutil.Process(cluster.list_all_nodes()[-1].all_processes["raylet"][0].process.pid)
    for process in [*raylet.children(recursive=True), raylet]:
        process.kill()
    code, printed, stderr = chaos.ended(run)
    assert code == 0, printed + stderr
    chaos.check_whole(out, undisturbed.out)


def mounted(undisturbed, out: Path, *mounts: str, before: str = "true") -> tuple[int, str]:
    """Run with file systems of its own; return its exit code and its last line on standard error."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces of mounts are not permitted here")
    words = " ".join(map(str, [sys.executable, "-m", "framekiln", "run", *undisturbed.words(out)]))
    script = " && ".join([*(f"mount -t tmpfs -o {mount}" for mount in mounts), before, f"exec {words}"])
    env = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "RAY_TMPDIR")}
    command = ["unshare", "-m", "bash", "-c", script]
    done = subprocess.run(command, cwd=chaos.ROOT, env=env, capture_output=True, text=True, timeout=250, check=False)
    return done.returncode, (done.stderr.splitlines() or [""])[-1]


@pytest.fixture
def elsewhere(undisturbed):
    """The same run with all its files on a disk that no test covers."""
    folder = Path("/opt") / undisturbed.out.parent.name
    folder.mkdir()
    run = type(undisturbed)(chaos.collection(folder / "in"), chaos.pipeline(folder / "pipeline.yaml"), undisturbed.out)
    yield run, folder / "out"
    subprocess.run(["rm", "-r", str(folder)], check=True)


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("mounts", "before"),
    [
        (["size=1m tmpfs /dev/shm"], "head -c 1000000 /dev/zero > /dev/shm/full"),
        (["size=1m,ro tmpfs /dev/shm"], "true"),
        (["size=1m,ro tmpfs /tmp"], "true"),
    ],
    ids=["full /dev/shm", "forbidden /dev/shm", "forbidden /tmp"],
)
def test_folders_that_ray_uses_elsewhere(elsewhere, undisturbed, mounts, before):
    run, out = elsewhere
    assert mounted(run, out, *mounts, before=before) == (0, "")
    frames, expected = (chaos.tables(folder)["frames"].drop_columns("uri") for folder in (out, undisturbed.out))
    assert frames.equals(expected)


@pytest.mark.chaos
def test_no_folder_for_temporary_files(elsewhere):
    run, out = elsewhere
    code, line = mounted(run, out, "size=1m,ro tmpfs /tmp", "size=1m,ro tmpfs /var/tmp")
    assert code == 2 and line.endswith("[FK-NO-TEMPORARY-FOLDER]"), line
    assert mounted(run, out) == (0, "")
