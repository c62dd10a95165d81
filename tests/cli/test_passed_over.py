"""Files that are no media, on the command line: counted apart, and an exit code for an input without any frame."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from pipeline.cli.console import NOTHING_READ
from tests.support.command_line import ROOT

pytestmark = pytest.mark.slow


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", "run", "-i", str(folder / "in"), "-o", str(folder / "out")]
    options = ["--stages", "lighting", "--max-errors", "0", *words]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=ROOT)


def test_an_input_of_sidecars_alone_has_a_code_of_its_own_and_photos_beside_them_none(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, text in {"1.txt": "a caption", "1.json": "{}"}.items():
        (tmp_path / "in" / name).write_text(text)
    nothing = run(tmp_path)
    assert nothing.returncode == NOTHING_READ == 4, nothing.stderr
    assert "Nothing could be read" in nothing.stderr and "2 files passed over" in nothing.stdout
    Image.new("RGB", (32, 24), (200, 30, 90)).save(tmp_path / "in" / "1.png")
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["errors"] == {} and record["passed_over"] == 2
    assert "2 files, not media" in (tmp_path / "out" / "report.html").read_text()
