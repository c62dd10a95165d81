"""Benchmarks run: their figures are nobody's test, but a script that breaks is noticed here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.heavy
@pytest.mark.parametrize(
    "words", ["identities --faces 300", "profiling --packets 20", "report --rows 500", "accuracy --only quality"]
)
def test_a_benchmark_ends(words):
    name, *rest = words.split()
    command = [sys.executable, "-m", f"benchmarks.{name}", *rest]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\d", done.stdout)
