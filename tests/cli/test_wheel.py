"""Framekiln as it is installed, in a folder where the user's own modules have every name that ours might clash with."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from framekiln.media.samples import photos

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = "steps: {lighting: {use: lighting}, red: {use: 'stages.red:Red'}}\n"
STAGE = '''
import numpy as np
import pyarrow as pa
from framekiln.contract import Stage, field, views

class Red(Stage):
    """Red mean."""
    inputs = ("frame_224",)
    outputs = pa.schema([field("red", pa.float32(), "mean red")])

    def __call__(self, batch):
        return pa.table({"red": pa.array([v[..., 0].mean() for v in views(batch["frame_224"])], pa.float32())})
'''


def run(*command, cwd, **env):
    ours = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAY_ADDRESS")}
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env=ours | env, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT, cwd=folder)
    if "No matching distribution found for hatchling" in built.stderr:
        pytest.skip("pip has no package index here to build a wheel with")
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("framekiln-*.whl")
    return wheel


def test_a_wheel_installs_our_own_names_only(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"framekiln", "framekiln_stages"}
    assert "framekiln/manifests/pipeline.yaml" in names and "framekiln/py.typed" in names


@pytest.fixture(scope="module", params=["wheel", "editable"])
def python(request, tmp_path_factory):
    """Python of an environment in which Framekiln is installed; its dependencies are this environment's."""
    folder = tmp_path_factory.mktemp(request.param)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    path = folder / "venv" / "bin" / "python"
    site = Path(run(path, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).stdout.strip())
    what = [request.getfixturevalue("wheel")] if request.param == "wheel" else ["-e", ROOT]
    done = run(sys.executable, "-m", "pip", "--python", path, "install", "-q", "--no-deps", *what, cwd=folder)
    if "No matching distribution found for hatchling" in done.stderr:
        pytest.skip("pip has no package index here to install with")
    assert done.returncode == 0, done.stderr
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # theirs would take minutes to install
    return path


@pytest.fixture
def project(tmp_path):
    """A folder of the user's: a photo, a stage in `stages/`, and modules of our folders' names."""
    folder = tmp_path / "project"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "china.jpg").write_bytes(photos()["china.jpg"].read_bytes())
    (folder / "mine.yaml").write_text(PIPELINE)
    for name in ("stages", "samples", "manifests", "tests"):
        (folder / name).mkdir()
        text = "" if name == "stages" else f"raise RuntimeError('the {name} package of the project')\n"
        (folder / name / "__init__.py").write_text(text)
    (folder / "stages" / "red.py").write_text(STAGE)
    (folder / "pipeline.py").write_text("raise RuntimeError('the pipeline module of the project')\n")
    return folder


# Each two of an installation, an engine and a path meet once.
@pytest.mark.parametrize(
    ("python", "engine", "path"),
    [("wheel", "local", "project"), ("wheel", "ray", ""), ("editable", "local", ""), ("editable", "ray", "project")],
    indirect=["python"],
)
def test_the_users_own_names_stand_beside_ours(python, project, engine, path):
    env = {"FRAMEKILN_ENGINE": engine} | ({"PYTHONPATH": str(project)} if path else {})
    command = python.parent / "framekiln"
    words = ("run", "-i", "in", "-o", "out", "--pipeline", "mine.yaml")
    done = run(command, *words, cwd=project, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(command, "--version", cwd=project, **env).stdout.startswith("framekiln ")
    (frame,) = pq.read_table(project / "out" / "frames").to_pylist()
    assert frame["media_id"] == "china.jpg" and None not in (frame["red"], frame["exposure"])
    assert (project / "out" / "report.html").exists()
    api = "import framekiln; out = framekiln.run('in', 'out2', pipeline='mine.yaml'); print(out.summary.frames)"
    done = run(python, "-c", api, cwd=project, **env)
    assert done.stdout.strip() == "1", done.stderr
