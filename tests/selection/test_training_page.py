"""docs/training-data.md, carried out."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from framekiln.media.samples import make
from tests.support.machine.command_line import ROOT


@pytest.mark.heavy
def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch):
    """Each command of docs/training-data.md and its Python, on the samples."""
    monkeypatch.setenv("FRAMEKILN_ENGINE", "local")
    make(tmp_path / "photos")
    page = (ROOT / "docs" / "training-data.md").read_text("utf-8")
    lines = [line for block in re.findall(r"```bash\n(.*?)```", page, re.S) for line in block.splitlines()]
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    for words in [*(["-m", *shlex.split(line)] for line in lines), ["-c", code + "print(len(rows))"]]:
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
    assert int(done.stdout.split()[-1]) >= 4  # a photo is a shot of its own
