"""Instruments really record what a step does, change nothing of its results, and say what they lack."""

from __future__ import annotations

import gzip
import json
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline import spying
from pipeline.calls import Caller
from pipeline.columns import SOURCE
from pipeline.device.recording import Marks
from pipeline.errors import ConfigError
from pipeline.instruments import FAILED, NONE, PY_SPY, Counted, Instruments
from pipeline.packet import HALO
from pipeline.readiness import set_up
from pipeline.storage import Store
from tests.collections_factory import photo
from tests.plan_factory import plan, toy
from tests.toys import Checksum

RUN = "0123456789ab"


@pytest.fixture
def store(tmp_path):
    found = Store(str(tmp_path)).of_run(RUN)
    found.prepare()
    return found


def called(store, asked, kind="Blurs", rows=10, batch=2, **settings):
    """What a step says of rows, in calls of some rows; and its files by their endings."""
    step = plan({"toy": toy(kind, **settings)}, {"steps": {"toy": {"batch": batch}}}).first[0]
    set_up(step)
    values = {"frame_index": range(rows), "clip_index": [0] * rows, "media_id": ["a.mp4"] * rows}
    values |= {"height": [8] * rows, "width": [8] * rows}
    columns = [pa.array(values.get(item.name, [None] * rows), item.type) for item in SOURCE]
    table = pa.table([*columns, [False] * rows], schema=pa.schema([*SOURCE, (HALO, pa.bool_())]))
    outcome = Caller(step, probe=asked.probe(step, store)).run(table, np.zeros(rows, bool))
    names = [f"{folder}/{name}" for folder in ("profile/torch", "profile/memory") for name in store.names(folder)]
    return outcome, {name.rpartition("-")[2]: store.read(name) for name in names}


def events(packed):
    return json.loads(gzip.decompress(packed))["traceEvents"]


def test_some_calls_are_recorded_with_their_phases_and_results_stay(store):
    asked = Instruments(torch_profiler=Counted(step="toy", calls=2))
    plainly, nothing = called(store, NONE)
    outcome, files = called(store, asked)
    assert nothing == {} and outcome.columns.equals(plainly.columns)
    assert sorted(files) == ["1.json.gz", "2.json.gz", "operators.txt"]
    names = {event.get("name") for event in events(files["2.json.gz"])}
    assert {"toy", "preprocess", "infer", "aten::conv2d"} <= names
    by_time, _, by_memory = files["operators.txt"].decode().partition("By memory")
    assert "aten::conv2d" in by_time and "aten::" in by_memory
    counts = [line.split()[-1] for line in by_time.splitlines() if line.split()[:1] == ["aten::conv2d"]]
    assert counts == ["2"]


def test_a_call_that_raises_is_recorded_and_raises(store):
    asked = Instruments(torch_profiler=Counted(step="toy", calls=9))
    outcome, files = called(store, asked, never=3)
    (failure,) = outcome.failures
    assert (failure.frame_index, failure.message) == (3, "no") and outcome.columns["mean"].null_count == 1
    assert "operators.txt" in files and not any(name.endswith("failed.txt") for name in files)


def test_the_memory_of_tensors_is_a_counter(store):
    side, rows = 64, 2
    outcome, files = called(store, Instruments(memory_timeline=Counted(step="toy", calls=1)), side=side, batch=rows)
    assert outcome.failures == [] and list(files) == ["1.json.gz"]
    counted = [event["args"]["MB"] for event in events(files["1.json.gz"]) if event.get("ph") == "C"]
    at_least = 4e-6 * rows * (3 * side**2 + 8 * (side - 2) ** 2)  # what goes in and comes out, fp32
    assert at_least <= max(counted) < 3 * at_least


def test_a_stage_without_torch_has_no_such_memory_and_that_is_said(store):
    asked = Instruments(memory_timeline=Counted(step="toy"))
    _, files = called(store, asked, kind="Hungry")
    (said,) = files.values()
    assert said.decode().endswith("made no tensors by torch, whose memory alone can be watched on the CPU.")
    (line,) = asked.said(store)
    assert line.startswith("--memory-timeline: step toy could not be recorded")


def test_a_folder_that_takes_nothing_costs_no_row(store, tmp_path):
    (tmp_path / "profile").touch()
    outcome, _ = called(store, Instruments(torch_profiler=Counted(step="toy")))
    assert outcome.failures == [] and outcome.columns["mean"].null_count == 0


STEPS = {"toy": toy("Blurs"), "crc": toy("Checksum"), "all": toy("Everything")}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"torch_profiler": Counted(step="tyo")}, "--torch-profiler tyo: there is no such step. Did you mean 'toy'?"),
        ({"py_spy": "all"}, "--py-spy all: there is no such step of the first pass"),
        (
            {"torch_profiler": Counted(step="toy"), "memory_timeline": Counted(step="toy")},
            "--torch-profiler and --memory-timeline cannot look at one step (toy) together",
        ),
        ({"nsight": ("toy",)}, "--nsight toy: this step has no process of its own"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(store, asked, said):
    with pytest.raises(ConfigError) as refused:
        Instruments(**asked).check(plan(STEPS), store, here=True)
    assert str(refused.value).startswith(said)


def test_tools_that_are_missing_are_named(store, monkeypatch):
    made = plan(STEPS, {"steps": {"toy": {"group": "g"}}})
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(spying.sys, "executable", "/nowhere/python")
    for asked, said in (
        ({"nsight": ("toy",)}, "install nsight-systems-cli"),
        ({"py_spy": "toy"}, "pip install py-spy"),
    ):
        with pytest.raises(ConfigError, match=said):
            Instruments(**asked).check(made, store, here=True)
        assert Instruments(**asked).check(made, store, here=False) == ""  # elsewhere nobody can look
    with pytest.raises(ConfigError, match="write to a disk"):
        Instruments(py_spy="toy").check(made, Store("s3://bucket/out?region=x"), here=False)
    assert "marks nothing" in Instruments(nvtx=True).check(made, store, here=True)


def test_a_memory_timeline_of_a_step_without_torch_is_doubted_before_the_run(store):
    steps = {"lighting": {"use": "stages.lighting:Lighting"}, "faces": {"use": "stages.faces:Faces"}}
    made = plan(steps, missing_weights="dummy")
    said = Instruments(memory_timeline=Counted(step="lighting")).check(made, store, here=True)
    assert said.startswith("--memory-timeline lighting shows nothing unless the step computes by torch")
    assert Instruments(memory_timeline=Counted(step="faces")).check(made, store, here=True) == ""


def test_nsys_is_asked_for_by_the_steps_it_was_named_for(store, tmp_path):
    made = plan(STEPS, {"steps": {"toy": {"group": "g"}}})
    told = Instruments(nsight=("toy",)).started(made.first, store)["runtime_env"]
    assert told["nsight"]["o"] == f"{store.root}/profile/nsight/toy-{RUN}-%p" and "nvtx" in told["nsight"]["t"]
    assert NONE.started(made.first, store) == {}
    odd = Store(str(tmp_path / "it's (1) née")).of_run(RUN)
    place = Instruments(nsight=("toy",)).started(made.first, odd)["runtime_env"]["nsight"]["o"]
    done = subprocess.run(f"echo {Path('/logs') / place}", shell=True, capture_output=True, text=True, check=True)
    assert done.stdout == f"{odd.root}/profile/nsight/toy-{RUN}-%p\n", "as Ray joins it, and its shell reads it"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_marks_without_a_gpu_are_none():
    assert Marks("toy")(None, lambda: 3) == 3


def test_marks_lie_round_phases_of_what_a_stage_hands_its_phase_to():
    stage, marked = Checksum(), []
    inner = stage.phase  # as a network has it that was built in the set-up

    @contextmanager
    def mark(name):
        marked.append(f"{name} {sorted(stage.clock.seconds)}")
        yield
        marked.append(f"{name} {sorted(stage.clock.seconds)}")

    stage.mark = mark
    with inner("infer"):
        pass
    assert marked == ["infer []", "infer ['infer']"]


@pytest.mark.parametrize("text", ["toy:", "toy:0", "toy:x", "toy:-1"])
def test_a_number_of_calls_is_one(text):
    with pytest.raises(ConfigError, match="as in --torch-profiler faces:3"):
        Counted.read("--torch-profiler", text)
    assert Counted.read("--torch-profiler", "toy:7") == Counted(step="toy", calls=7)


def spun_for_the_spy(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


@pytest.fixture
def spy():
    try:
        spying.check()
    except ConfigError as error:
        pytest.skip(str(error))


def test_a_flame_graph_names_what_ran(store, spy):
    asked = Instruments(py_spy="toy")
    step = plan({"toy": toy("Blurs")}).first[0]
    asked.probe(step, store)._around[0](step.stage, lambda: spun_for_the_spy(3))
    assert list(asked.said(store)) == [f"--py-spy: 1 files in {store.root}/{PY_SPY}"]
    (name,) = store.names(PY_SPY)
    assert name.startswith(f"toy-{RUN}-") and b"spun_for_the_spy" in store.read(f"{PY_SPY}/{name}")


def test_a_spy_that_cannot_say_leaves_its_reason(store, monkeypatch, tmp_path):
    other = tmp_path / "py-spy"
    other.write_text("#!/bin/sh\necho 'Permission Denied' >&2\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setattr(spying.shutil, "which", lambda *_, **__: str(other))
    with pytest.raises(ConfigError, match=r"may not look into processes here \(Permission Denied\)"):
        spying.check()
    asked = Instruments(py_spy="toy")
    asked.probe(plan({"toy": toy("Blurs")}).first[0], store)._around[0](None, lambda: time.sleep(1))
    assert list(asked.said(store)) == ["--py-spy: py-spy wrote nothing (Permission Denied)."]
    assert [name.endswith(FAILED) for name in store.names(PY_SPY)] == [True]


PIPELINE = "steps: {toy: {use: 'tests.toys:Blurs'}, other: {use: 'tests.toys:Checksum'}}"


@pytest.mark.slow
def test_a_run_says_where_its_recordings_are(tmp_path, framemill, spy):
    for i in range(12):
        photo(tmp_path / "in" / f"photo{i}.png", i)
    (tmp_path / "p.yaml").write_text(PIPELINE)
    profile = "{steps: {toy: {batch: 2, group: g}}}"
    (tmp_path / "profile.yaml").write_text(profile)
    words = ["--torch-profiler", "toy:2", "--memory-timeline", "other:1", "--py-spy", "toy", "--nvtx"]
    where = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--pipeline", tmp_path / "p.yaml"]
    said = framemill("run", *where, "--profile", tmp_path / "profile.yaml", *words)
    assert "--nvtx marks nothing" in said
    assert "--memory-timeline: step other could not be recorded" in said, said
    for option, folder, most in (("--torch-profiler", "torch", 3), ("--py-spy", "py-spy", 1)):
        assert f"{option}: {most} files in {tmp_path}/out/profile/{folder}\n" in said, said
