"""Functions of a script in worker processes, and a kernel that goes on after an interruption."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.support.machine.command_line import ROOT, command
from tests.support.runs.engine_factory import table

BOTH = ["local", pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.heavy])]

KILLER = """
import os, signal, sys
import framekiln, pyarrow as pa

FATAL = "photo2.png"

@framekiln.stage(inputs=("media_id", "frame_index"), outputs={"number": pa.int64()})
def number(media_id, frame_index):
    if media_id == FATAL:
        os.kill(os.getpid(), signal.SIGSEGV)
    return frame_index

out = framekiln.run(sys.argv[1], sys.argv[2], stages=number)
print(out.summary.frames, out.errors.to_table().select(["media_id", "kind"]).to_pylist())
"""

INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
import framekiln, pyarrow as pa

GATE = Path(sys.argv[2] + ".interrupted")

@framekiln.stage(inputs="frame_index", outputs={"number": pa.int64()})
def number(frame_index):
    while frame_index and not GATE.exists():
        time.sleep(0.02)
    return frame_index

def interrupt():
    while not list(Path(sys.argv[2], "columns").rglob("*.parquet")):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
steps = {"steps": {"crc": {"use": "tests.toys:Checksum"}}}
try:
    framekiln.run(sys.argv[1], sys.argv[2], pipeline=steps, stages=["crc", number])
    sys.exit("it was not interrupted")
except KeyboardInterrupt:
    print("interrupted")
GATE.touch()
print(framekiln.run(sys.argv[1], sys.argv[2], pipeline=steps, stages=["crc", number]).summary.frames)
"""


def run_script(code, media, out, engine):
    env = {**os.environ, "FRAMEKILN_ENGINE": engine, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    script = out.with_suffix(".py")
    script.write_text(code)
    words = [sys.executable, str(script), str(media), str(out)]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.heavy  # `faults/deaths` has rows that kill, and `test_notebook` functions that are nobody's module
@pytest.mark.parametrize("engine", BOTH)
def test_a_row_that_kills_its_process_is_set_aside_from_a_script_without_a_guard(media, tmp_path, engine):
    said = run_script(KILLER, media, tmp_path / "out", engine)
    assert said.strip() == "36 [{'media_id': 'photo2.png', 'kind': 'Died'}]"
    rows = table(tmp_path / "out", "frames")
    assert rows["number"].null_count == 1 and rows["number"].to_pylist()[-1] == 29


@pytest.mark.heavy
@pytest.mark.parametrize("engine", BOTH)
def test_a_run_is_interrupted_and_continued_in_one_process(media, tmp_path, engine):
    said = run_script(INTERRUPTED, media, tmp_path / "out", engine)
    assert said.split() == ["interrupted", "36"]
    numbers = table(tmp_path / "out", "frames")["number"].to_pylist()
    assert numbers == [0] * 6 + list(range(30))


def test_a_pipeline_file_names_a_function(media, tmp_path, local):
    (tmp_path / "pipeline.yaml").write_text("steps:\n  light: {use: 'tests.toys.functions:brightness'}\n")
    done = command("run", media, tmp_path / "out", "--pipeline", tmp_path / "pipeline.yaml")
    assert done.returncode == 0, done.stderr
    item = pq.read_schema(next((tmp_path / "out" / "frames").iterdir())).field("brightness")
    assert item.metadata[b"description"] == b"Mean of all channels."
