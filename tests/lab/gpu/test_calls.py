"""The calls of a rented GPU, as a script: one that fails loses no other, and packages come from one file."""

from __future__ import annotations

import os
import subprocess
import tarfile

import pytest

from tests.support.machine.command_line import ROOT

PYTHON = """#!/bin/sh
echo "$* in $PYTHONPATH with $FRAMEKILN_WEIGHTS" >>"$MADE"
case "$*" in *equality*) echo wrong >&2; exit 1 ;; esac
"""


@pytest.fixture
def make_calls(tmp_path):
    """Make calls in a folder of this test, with a Python that only notes what it is given; return code and notes."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    known = {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "MADE": str(tmp_path / "made"),
        "WORK": str(tmp_path / "w"),
    }

    def call(*names, **environment):
        (tmp_path / "made").write_text("")
        script = ROOT / "benchmarks" / "gpu" / "calls.sh"
        done = subprocess.run(
            ["bash", str(script), "results", *names],
            cwd=tmp_path,
            env=known | environment,
            capture_output=True,
            text=True,
        )
        assert not done.stderr
        return done.returncode, (tmp_path / "made").read_text().splitlines()

    return call


def test_a_wrong_result_is_told_and_loses_no_other_call(make_calls, tmp_path):
    code, made = make_calls()
    assert code == 1
    wanted = ["machine", "warm_up", "equality", "-m pytest", "shares", "engine", "capped"]
    assert [sum(word in line for line in made) for word in wanted] == [1] * 7
    log = (tmp_path / "results" / "log").read_text()
    assert "wrong\n" in log and "equal: exit code 1" in log and "tests: exit code 0" in log
    assert make_calls("machine", "shares")[0] == 0


def test_packages_come_from_a_file_and_weights_from_a_folder_beside_it(make_calls, tmp_path):
    (tmp_path / "package.py").write_text("")
    (tmp_path / "weights").mkdir()
    with tarfile.open(tmp_path / "site.tar.xz", "w:xz") as packed:
        packed.add(tmp_path / "package.py", "package.py")
    given = {"SITE": "site.tar.xz", "FRAMEKILN_WEIGHTS": "weights"}
    for count in (2, 1):  # compiled at the first use
        code, made = make_calls("machine", **given)
        assert (code, len(made)) == (0, count)
        assert f"{tmp_path}/w/site" in made[-1] and made[-1].endswith(f"with {tmp_path}/weights")
    assert (tmp_path / "w" / "site" / "package.py").exists()


def test_an_unknown_call_is_refused(make_calls):
    with pytest.raises(AssertionError, match="There is no call nosuch"):
        make_calls("nosuch")
