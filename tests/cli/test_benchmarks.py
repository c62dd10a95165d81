"""Benchmarks run: their figures are nobody's test, but a script that breaks is noticed here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.heavy
@pytest.mark.parametrize("words", ["identities --faces 300", "profiling --packets 20", "report --rows 500"])
def test_a_benchmark_ends(words):
    name, *rest = words.split()
    command = [sys.executable, "-m", f"benchmarks.{name}", *rest]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\d", done.stdout)


@pytest.mark.heavy
def test_the_stages_benchmark_prints_a_row_for_each_case():
    words = ["--small", "--stages", "faces", "--batches", "1,2", "--seconds", "0.01", "--repeats", "1"]
    command = [sys.executable, "-m", "benchmarks.stages", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split("|")[1:3] for line in done.stdout.splitlines() if line.startswith("| faces")]
    assert [[cell.strip() for cell in row] for row in rows] == [["faces", "1"], ["faces", "2"]]
