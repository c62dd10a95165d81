"""docs/python.md, the examples and the docstrings' examples run as they stand."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import framekiln.api
from tests.support.machine.command_line import ROOT

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text("utf-8"), re.S | re.M)
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MODULES = [f"framekiln.api.{item.name}" for item in pkgutil.iter_modules(framekiln.api.__path__)]
LONG = {"framekiln.api.bench"}  # `test_bench` measures a function too
CONTRACT = ["framekiln.contract.function_stage", "framekiln.contract.errors"]


def run_script(path: Path, folder: Path) -> str:
    """What a script prints that runs in a folder."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "pipeline"), str(ROOT / "stages")])}
    done = subprocess.run([sys.executable, str(path)], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_says_what_it_shows(path, tmp_path, local):
    lines = path.read_text("utf-8").splitlines()
    assert lines[0].startswith('"""Shows ') and len(lines) <= 25
    printed = run_script(path, tmp_path)
    assert {
        "first_run": "6 files, ",
        "own_stage": "The least sharp frame: (",
        "compare_profiles": "Results agree - more in ",
        "tables": "china.jpg",
    }[path.stem] in printed


@pytest.mark.heavy
@pytest.mark.slow
def test_the_document_runs_from_top_to_bottom(tmp_path, local):
    assert len(BLOCKS) == 10
    script = tmp_path / "document.py"
    script.write_text("\n".join(BLOCKS))
    printed = run_script(script, tmp_path)
    assert "FK-UNKNOWN-STEP" in printed and "'sharpness': 0" in printed
    assert (tmp_path / "out" / "report.html").exists() and not (tmp_path / "bench").exists()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.heavy] if name in LONG else []) for name in (*MODULES, *CONTRACT)]
)
def test_examples_in_docstrings_run(name, tmp_path, made, local):
    module = importlib.import_module(name)
    other = shutil.copytree(made.path, tmp_path / "other")
    known = {"tmp_path": tmp_path / "out", "output": made, "other": other}
    failed, _ = doctest.testmod(module, extraglobs=known, optionflags=doctest.ELLIPSIS)
    assert failed == 0
