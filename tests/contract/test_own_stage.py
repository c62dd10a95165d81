"""`docs/stages.md`: its package is written to a folder, checked, planned and run as the document says."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from framekiln.contract.testing import check_stage
from framekiln.media.samples import photos
from framekiln.planning.manifest import ProfileFile, read_pipeline
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "stages.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE))
COMMANDS = re.findall(r"^```bash\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The document's files in a folder of their own, importable and the current one."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "mystages"]:
        del sys.modules[name]


def test_the_document_has_the_package():
    stages = {f"mystages/{name}.py" for name in ("__init__", "grain", "colorfulness", "sharpness")}
    assert FILES.keys() == stages | {"colorfulness.yaml", "sharpness.yaml", "make_weights.py", "test_mystages.py"}
    assert len(COMMANDS) == 2


def test_the_stages_keep_the_contract(package):
    from mystages.colorfulness import Colorfulness
    from mystages.grain import grain
    from mystages.sharpness import WEIGHTS, Sharpness

    runpy.run_path("make_weights.py")
    check_stage(grain())
    check_stage(Colorfulness())
    check_stage(Sharpness(), weights={WEIGHTS: package / "weights" / "laplacian.safetensors"})


def test_the_weights_are_those_of_their_entry(package):
    runpy.run_path("make_weights.py")
    choices = PlanOptions(weights_dir=package / "weights")
    plan = make_plan(read_pipeline("sharpness.yaml"), ProfileFile(), choices, [ROOMY])
    assert plan.steps[0].weights == {"laplacian-3x3": package / "weights" / "laplacian.safetensors"}


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.parametrize("commands", COMMANDS)
def test_the_commands_run(package, commands):
    tools = package / "bin"
    tools.mkdir()
    for name, words in {"framekiln": "-m framekiln", "python": ""}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tools / name).chmod(0o755)
    (package / "photos").mkdir()
    shutil.copy(photos()["flower.jpg"], package / "photos")
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-ec", commands], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    (output,) = package.glob("out*")
    frames = pq.read_table(output / "frames")
    column = {"out": "colorfulness", "out-sharpness": "sharpness"}[output.name]
    assert frames.num_rows == 1 and frames[column][0].as_py() > 1
