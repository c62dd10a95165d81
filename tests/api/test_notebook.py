"""The API in cells: IPython runs them, and nothing else of a notebook is installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from framekiln.api.watch import NotebookView, make_watch
from framekiln.contract.row_errors import DECODE
from framekiln.profiling.records import StepEvent
from framekiln.profiling.stats.progress import RunTotals
from framekiln.reporting.terminal.progress import ProgressView
from tests.support.machine.command_line import ROOT

CELLS = """
import framekiln, pyarrow as pa

SCALE = 2

def scaled(value):
    return SCALE * value
---
@framekiln.stage(inputs="frame_224", outputs={"sharpness": pa.float32()})
def sharpness(image):
    "Twice the deviation of the green channel."
    return scaled(image[..., 1].std())
---
output = framekiln.run(MEDIA, OUT, stages=sharpness, progress=True)
output
---
before = output.table("frames").to_table()["sharpness"].to_pylist()
assert len(before) == 36 and min(before) > 0
---
framekiln.plan(MEDIA, OUT, stages=sharpness)
---
SCALE = 4
assert framekiln.plan(MEDIA, OUT, stages=sharpness).to_do == {"decode": 0, "sharpness": 7}
after = framekiln.run(MEDIA, OUT, stages=sharpness).table("frames").to_table()["sharpness"].to_pylist()
assert after == [2 * value for value in before]
---
framekiln.compare(OUT, OTHER)
"""

SHELL = """
import os, sys
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # so that the local engine starts one process, not two
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell = InteractiveShell.instance()
shell.user_ns |= dict(zip(("MEDIA", "OUT", "OTHER"), sys.argv[2:], strict=True))
for cell in sys.argv[1].split("---"):
    with capture_output(display=True) as shown:
        result = shell.run_cell(cell)
    if not result.success:
        sys.exit(str(result.error_before_exec or result.error_in_exec))
    html = [shell.display_formatter.format(result.result)[0].get("text/html", "")] if result.result is not None else []
    html += [output.data.get("text/html", "") for output in shown.outputs]
    print(*(text.replace(chr(10), " ") for text in html), sep=chr(10))
    print("===")
"""


def run_cells(media, out, other, **env):
    """What each cell shows as HTML."""
    words = [sys.executable, "-c", SHELL, CELLS, *map(str, (media, out, other))]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "IPYTHONDIR": str(out) + "-ipython", **env}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("===\n")


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.heavy])])
def test_cells_define_a_stage_run_it_and_show_tables(media, made, tmp_path, engine):
    shown = run_cells(media, tmp_path / "out", made.path, FRAMEKILN_ENGINE=engine)
    ran, plan, compared = shown[2], shown[4], shown[6]
    assert "7 files, 36 frames, no errors" in ran and "<td>frames" not in ran
    assert '<progress value="1.000"' in ran, "the last state of the progress stays"
    assert "sharpness</td>" in plan and "files to do" in plan
    assert "B beside A: " in compared


def test_progress_is_shown_where_it_is_asked_for(capsys):
    assert type(make_watch(None).view([])) is ProgressView
    make_watch(False).say("never shown")
    assert capsys.readouterr() == ("", "")
    make_watch(True).say("Waiting.")
    assert capsys.readouterr() == ("", "Waiting.\n")


def test_progress_in_a_cell_has_a_bar_for_each_step():
    shown, moments = [], iter([0.0, 0.0, 0.1, 0.6, 0.6])
    view = NotebookView(shown.append, [DECODE, "a<b"], clock=lambda: next(moments))
    figures = RunTotals()
    figures.add([StepEvent(step="a<b", rows=1200, failures=2, worker="w", started=0.0, seconds=1.0, unit="u", start=0)])
    for _ in range(3):
        view.show(figures)
    assert len(shown) == 2, "an update in half a second"
    assert "a&lt;b" in shown[-1] and "1,200" in shown[-1] and "2 errors" in shown[-1]
    with view:
        view.say("flow waits <a lot>")
    assert "flow waits &lt;a lot&gt;" in shown[-1] and len(shown) == 4


def test_a_shell_without_a_kernel_is_a_terminal():
    InteractiveShell.clear_instance()
    try:
        InteractiveShell.instance()
        assert type(make_watch(None).view([])) is ProgressView and type(make_watch(True).view([])) is NotebookView
    finally:
        InteractiveShell.clear_instance()
