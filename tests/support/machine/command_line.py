"""The command line of a test: in its own process, or in this one where that makes no difference."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from framekiln.cli.app import run_script
from framekiln.contract.output_names import FRAMES
from tests.support.runs.engine_factory import table

ROOT = Path(__file__).resolve().parents[3]
RUN = ROOT / "pipeline" / "run.py"


def command(*words, **env):
    """The command line in this process; what it returns and prints, as of a process of its own."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        patch.chdir(ROOT)
        for name, value in {"COLUMNS": "200", **env}.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as end:
            run_script([str(word) for word in words])
    return subprocess.CompletedProcess(words, end.value.code or 0, out.getvalue(), err.getvalue())


def process(*words, cwd=ROOT, door=RUN, **env):
    """The command line in a process of its own, by the door that `python pipeline/run.py` takes."""
    return subprocess.run(
        [sys.executable, str(door), *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", **env},
    )


def script(code, *words):
    """Python code in a process of its own, with these words as its arguments; it is ended only if it hangs."""
    given = [sys.executable, "-c", code, *map(str, words)]
    own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}  # conftest.py limits tests
    return subprocess.run(given, cwd=ROOT, env=own, capture_output=True, text=True, timeout=250)


def frames(out):
    """Return the table of frames of an output."""
    return table(out, FRAMES)
