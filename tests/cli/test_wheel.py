"""Framekiln from a wheel, in an environment and a folder of the user's own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from framekiln.media.samples import photos

ROOT = Path(__file__).resolve().parents[2]


def run(*command, cwd):
    ours = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAY_ADDRESS")}
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env=ours, capture_output=True, text=True, check=False
    )


@pytest.mark.heavy
@pytest.mark.slow
def test_a_wheel_works_in_a_folder_with_packages_of_the_same_names(tmp_path):
    built = run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT, cwd=tmp_path)
    if "No matching distribution found for hatchling" in built.stderr:
        pytest.skip("pip has no package index here to build a wheel with")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("framekiln-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    site = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).stdout.strip()
    )
    install = ("-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel)
    assert run(sys.executable, *install, cwd=tmp_path).returncode == 0
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # theirs would take minutes to install

    project = tmp_path / "project"
    (project / "in").mkdir(parents=True)
    (project / "in" / "china.jpg").write_bytes(photos()["china.jpg"].read_bytes())
    for name in ("pipeline", "stages", "manifests", "samples", "tests"):
        (project / name).mkdir()
        (project / name / "__init__.py").write_text(f"raise RuntimeError('the {name} package of the project')\n")
    framekiln = tmp_path / "venv" / "bin" / "framekiln"
    done = run(framekiln, "run", "-i", "in", "-o", "out", "--stages", "lighting,pose", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    result = run(
        python, "-c", "import pyarrow.parquet as p; print(p.read_table('out/frames')['media_id'])", cwd=project
    )
    assert "china.jpg" in result.stdout and (project / "out" / "report.html").exists()
