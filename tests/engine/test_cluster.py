"""`ray up`, `ray submit`, `ray job submit` and `ray down`, for real: over ssh to machines made out of namespaces.

The cluster file is the committed one, unchanged.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from framekiln.weights.resolver import cache_folder
from tests.support.machine import lan
from tests.support.media import material

ROOT = Path(__file__).resolve().parents[2]
LOCAL = "manifests/cluster/local.yaml"
HEAD, WORKER = "192.0.2.10", "192.0.2.11"  # those of local.yaml, from the range for documentation (RFC 5737)
JOBS = "http://127.0.0.1:8265"
ARGUMENTS = ("--profile", "cpu-only", "--missing-weights", "skip", "--stages", "lighting,flow,pose", "--every-nth", "4")
NAMED_PORTS = {22, 6379, 8076, 8077, 8078, 8079, 8080, 10001, 44217, 44227, 52365}
WORKER_PORTS = range(10100, 20000)
TOKEN: dict[str, Any] = {"RAY_AUTH_MODE": "token"}

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(420)]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running cluster, and the checkout from which it was brought up."""

    laptop: lan.Machine
    head: lan.Machine
    worker: lan.Machine
    checkout: Path
    media: Path
    out: Path
    bystander: subprocess.Popen[bytes]
    run_here: subprocess.Popen[bytes]  # the same run without a cluster, to compare with; started early to save time

    def ray(self, *words: str, **environment: Any) -> str:
        """Output of a `ray` command typed on the laptop, which must succeed."""
        done = self.laptop.run("ray", *words, cwd=self.checkout, **environment)
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    lan.require()
    root = tmp_path_factory.mktemp("lan")
    visible = [path for path in (ROOT, material.ROOT, Path(sys.prefix), Path(sys.base_prefix)) if path.exists()]
    network = lan.Network(root, {"laptop": "192.0.2.1", "head": HEAD, "worker": WORKER}, visible)
    bystander = _bystander(root)
    try:
        yield _launch(root, network, bystander)
    finally:
        bystander.kill()
        bystander.wait()
        network.stop()


def _launch(root: Path, network: lan.Network, bystander: subprocess.Popen[bytes]) -> Cluster:
    """A running cluster with its dashboard's tunnel, made by the steps of docs/cluster.md."""
    laptop, head, worker = network.machines.values()
    _allow(laptop, [head, worker])
    _install_python(head, worker)
    laptop.run("ray", "get-auth-token", "--generate")
    _carry_weights(laptop)
    checkout, media, out = _checkout(root / "checkout"), _media(root / "media"), root / "out"
    here = ("--input", str(media), "--output", str(out / "here"))
    launched = Cluster(
        laptop=laptop,
        head=head,
        worker=worker,
        checkout=checkout,
        media=media,
        out=out,
        bystander=bystander,
        run_here=laptop.start("python", "pipeline/run.py", *ARGUMENTS, *here, cwd=checkout, log="here.log"),
    )
    launched.ray("up", "-y", LOCAL)
    laptop.start("ray", "dashboard", LOCAL, cwd=checkout, log="tunnel.log")
    _wait_for_nodes(launched, 2)
    return launched


def _carry_weights(laptop: lan.Machine) -> None:
    """Fill the cache folder of the person who calls `ray up`, as `make install` does."""
    cache = laptop.home / ".cache" / "framekiln" / "weights"
    cache.mkdir(parents=True)
    wheels = list(cache_folder().glob("mediapipe-*.whl"))
    assert wheels, "`make install` puts the wheel with the pose networks there"
    shutil.copy(wheels[0], cache)


def _bystander(root: Path) -> subprocess.Popen[bytes]:
    """A process that `ray stop` would take for Ray's if it could see it: one of this machine, outside the cluster."""
    program = root / "raylet"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    return subprocess.Popen([str(program), "1000"])


def _allow(laptop: lan.Machine, machines: list[lan.Machine]) -> None:
    key = laptop.home / ".ssh" / "id_ed25519"
    key.parent.mkdir(mode=0o700)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    for machine in machines:
        machine.serve_ssh(key.with_suffix(".pub").read_text())


def _install_python(*machines: lan.Machine) -> None:
    """Leave what an earlier install would have, all dependencies and not Framekiln: no package index is in reach."""
    packages = Path(pa.__file__).resolve().parents[1]
    for machine in machines:
        folder = machine.home / "framekiln" / "venv"
        venv.create(folder, symlinks=True)
        inside = next((folder / "lib").glob("python3.*/site-packages"))
        (inside / "dependencies.pth").write_text(f"{packages}\n")
        command = folder / "bin" / "ray"
        command.write_text(f"#!{folder}/bin/python\nfrom ray.scripts.scripts import main\nmain()\n")
        command.chmod(0o755)
        (machine.home / ".bashrc").write_text(f'export PATH="{lan.PATH}"\n')


def _checkout(folder: Path) -> Path:
    """A copy of this checkout with a wheel in dist/, built as docs/cluster.md says."""
    folder.mkdir()
    for name in ("pipeline", "stages", "manifests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    (folder / "README.md").touch()
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "dist", "."],
        cwd=folder,
        check=True,
    )
    return folder


def _media(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "framekiln.media.samples", str(folder)], check=True, stdout=subprocess.DEVNULL
    )
    return folder


def _wait_for_nodes(cluster: Cluster, count: int, seconds: float = 120) -> None:
    """Until so many nodes have joined; asked through the tunnel, as a person would look at the dashboard."""
    token = (cluster.laptop.home / ".ray" / "auth_token").read_text()
    question = ["curl", "-s", "-m", "5", "-H", f"Authorization: Bearer {token}", f"{JOBS}/nodes?view=summary"]
    deadline = time.monotonic() + seconds
    while True:
        answer = cluster.laptop.run(*question).stdout
        states = (
            [node["raylet"].get("state") for node in json.loads(answer)["data"]["summary"]]
            if answer.startswith("{")
            else []
        )
        if states.count("ALIVE") == count:
            return
        if time.monotonic() > deadline:
            log = cluster.head.run("bash", "-c", "tail -n 30 /tmp/ray/session_latest/logs/monitor*").stdout
            raise AssertionError(f"nodes after {seconds} s: {states}; the autoscaler says: {log}")
        time.sleep(1)


@pytest.fixture(scope="module")
def frames_here(cluster: Cluster) -> pa.Table:
    """Return the results of a run without a cluster on the same media."""
    assert cluster.run_here.wait(timeout=120) == 0, (cluster.laptop.root / "here.log").read_text()[-3000:]
    return _frames(cluster.out / "here")


def _frames(out: Path) -> pa.Table:
    return pq.read_table(out / "frames").sort_by([("media_id", "ascending"), ("frame_index", "ascending")])


def _assert_same(out: Path, expected: pa.Table) -> None:
    frames = _frames(out)
    assert frames.num_rows > 50
    assert frames.equals(expected)


class TestLife:
    """The life of one cluster, in order."""

    def test_both_nodes_have_the_wheel_and_a_token_that_only_its_owner_reads(self, cluster: Cluster) -> None:
        token = (cluster.laptop.home / ".ray" / "auth_token").read_text()
        for machine in (cluster.head, cluster.worker):
            where = machine.run("framekiln/venv/bin/python", "-c", "import framekiln; print(framekiln.__file__)").stdout
            assert where.startswith(str(machine.home / "framekiln" / "venv")), where
            copy = machine.home / ".ray" / "auth_token"
            assert copy.read_text() == token
            assert copy.stat().st_mode & 0o777 == 0o600

    def test_submit_gives_what_a_local_run_gives(self, cluster: Cluster, frames_here: pa.Table) -> None:
        out = cluster.out / "submit"
        cluster.ray("submit", LOCAL, "pipeline/run.py", *ARGUMENTS, "--input", str(cluster.media), "--output", str(out))
        _assert_same(out, frames_here)

    def test_job_submit_gives_what_a_local_run_gives(self, cluster: Cluster, frames_here: pa.Table) -> None:
        out = cluster.out / "job"
        command = ("framekiln", "run", *ARGUMENTS, "--input", str(cluster.media), "--output", str(out))
        submitted = cluster.ray("job", "submit", "--address", JOBS, "--", *command, **TOKEN)
        assert "succeeded" in submitted
        _assert_same(out, frames_here)

    def test_a_user_s_mistake_comes_back_as_a_failed_submit(self, cluster: Cluster) -> None:
        words = (
            "submit",
            LOCAL,
            "pipeline/run.py",
            "--profile",
            "no-such",
            "--input",
            str(cluster.media),
            "--output",
            str(cluster.out / "no"),
        )
        done = cluster.laptop.run("ray", *words, cwd=cluster.checkout)
        assert done.returncode != 0
        assert "no-such" in done.stdout

    def test_without_the_token_nobody_gets_in(self, cluster: Cluster) -> None:
        jobs, control = ("job", "list", "--address", JOBS), ("health-check", "--address", f"{HEAD}:6379")
        for question in (jobs, control):
            assert cluster.laptop.run("ray", *question, **TOKEN).returncode == 0
            assert cluster.laptop.run("ray", *question, RAY_AUTH_TOKEN="0" * 64, **TOKEN).returncode != 0
        refused = cluster.laptop.run("ray", *jobs, RAY_AUTH_TOKEN="0" * 64, **TOKEN)
        assert "Invalid authentication token" in refused.stdout

    def test_the_dashboard_is_not_on_the_network_and_only_named_ports_are(self, cluster: Cluster) -> None:
        for address, port in ((HEAD, 8265), (WORKER, 8265)):
            assert cluster.laptop.run("bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}").returncode != 0
        for machine in (cluster.head, cluster.worker):
            lines = machine.run("ss", "-Hltn").stdout.splitlines()
            sockets = [line.split()[3].rsplit(":", 1) for line in lines]
            open_ports = {int(port) for address, port in sockets if "127.0.0.1" not in address and address != "[::1]"}
            assert 6379 in open_ports or machine is cluster.worker
            assert {port for port in open_ports if port not in WORKER_PORTS} <= NAMED_PORTS

    def test_down_ends_the_cluster_and_nothing_else(self, cluster: Cluster) -> None:
        cluster.ray("down", "-y", LOCAL)
        assert cluster.head.processes("raylet") == []
        assert cluster.head.processes("gcs_server") == []
        assert cluster.bystander.poll() is None
        # What docs/cluster.md tells to do after it, since this provider leaves the workers' processes to themselves.
        key = str(cluster.laptop.home / ".ssh" / "id_ed25519")
        there = (
            "ssh",
            "-i",
            key,
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
            f"{lan.USER}@{WORKER}",
        )
        stopped = cluster.laptop.run(*there, "framekiln/venv/bin/ray stop")
        assert stopped.returncode == 0, stopped.stdout
        assert [line for line in cluster.worker.processes("ray") if "sshd" not in line] == []
