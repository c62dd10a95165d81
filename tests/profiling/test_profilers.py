"""Profilers record a step's calls, leave its results unchanged, and name what they lack."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from framekiln.contract.columns import SOURCE
from framekiln.contract.errors import ConfigError
from framekiln.contract.packet import HALO
from framekiln.output.object_store import Store
from framekiln.profiling.tools import py_spy
from framekiln.profiling.tools.profilers import FAILED, NO_PROFILERS, PY_SPY, ProfiledCalls, ProfilerOptions
from framekiln.profiling.tools.torch_profiler import NvtxRanges
from framekiln.runtime.stage_setup import set_up
from framekiln.runtime.step_results import PacketCaller
from tests.support.media.collections_factory import photo
from tests.support.runs.plan_factory import plan, toy
from tests.toys import Checksum

RUN = "0123456789ab"


@pytest.fixture
def store(tmp_path):
    new_store = Store(str(tmp_path)).of_run(RUN).begin()
    new_store.prepare()
    return new_store


def called(store, options, kind="Blurs", rows=10, batch=2, **settings):
    """Return a step's outcome in calls of some rows, and its recordings by their endings."""
    step = plan({"toy": toy(kind, **settings)}, {"steps": {"toy": {"batch": batch}}}).first[0]
    set_up(step)
    values = {"frame_index": range(rows), "clip_index": [0] * rows, "media_id": ["a.mp4"] * rows}
    values |= {"height": [8] * rows, "width": [8] * rows}
    columns = [pa.array(values.get(item.name, [None] * rows), item.type) for item in SOURCE]
    table = pa.table([*columns, [False] * rows], schema=pa.schema([*SOURCE, (HALO, pa.bool_())]))
    outcome = PacketCaller(step, profiler=options.caller(step, store)).run(table, np.zeros(rows, bool))
    names = [f"{folder}/{name}" for folder in ("profile/torch", "profile/memory") for name in store.names(folder)]
    return outcome, {name.rpartition("-")[2]: store.read(name) for name in names}


def events(packed):
    return json.loads(gzip.decompress(packed))["traceEvents"]


def test_some_calls_are_recorded_with_their_phases_and_results_stay(store):
    options = ProfilerOptions(torch_profiler=ProfiledCalls(step="toy", calls=2))
    plainly, nothing = called(store, NO_PROFILERS)
    outcome, files = called(store, options)
    assert nothing == {} and outcome.columns.equals(plainly.columns)
    assert sorted(files) == ["1.json.gz", "2.json.gz", "operators.txt"]
    names = {event.get("name") for event in events(files["2.json.gz"])}
    assert {"toy", "preprocess", "infer", "aten::conv2d"} <= names
    by_time, _, by_memory = files["operators.txt"].decode().partition("By memory")
    assert "aten::conv2d" in by_time and "aten::" in by_memory
    counts = [line.split()[-1] for line in by_time.splitlines() if line.split()[:1] == ["aten::conv2d"]]
    assert counts == ["2"]


def test_a_call_that_raises_is_recorded_and_raises(store):
    options = ProfilerOptions(torch_profiler=ProfiledCalls(step="toy", calls=9))
    outcome, files = called(store, options, never=3)
    (failure,) = outcome.failures
    assert (failure.frame_index, failure.message) == (3, "no") and outcome.columns["mean"].null_count == 1
    assert "operators.txt" in files and not any(name.endswith("failed.txt") for name in files)


def test_the_memory_of_tensors_is_a_counter(store):
    side, rows = 64, 2
    options = ProfilerOptions(memory_timeline=ProfiledCalls(step="toy", calls=1))
    outcome, files = called(store, options, side=side, batch=rows)
    assert outcome.failures == [] and list(files) == ["1.json.gz"]
    counted = [event["args"]["MB"] for event in events(files["1.json.gz"]) if event.get("ph") == "C"]
    at_least = 4e-6 * rows * (3 * side**2 + 8 * (side - 2) ** 2)  # what goes in and comes out, fp32
    assert at_least <= max(counted) - min(counted) < 3 * at_least  # other tests may hold tensors too


def test_a_stage_without_torch_has_no_memory_timeline_and_the_reason_is_reported(store):
    options = ProfilerOptions(memory_timeline=ProfiledCalls(step="toy"))
    _, files = called(store, options, kind="Hungry")
    (name,) = files
    assert name.endswith(FAILED)
    (line,) = options.report(store)
    assert line.startswith("--memory-timeline: step toy could not be recorded")


def test_a_folder_that_takes_nothing_costs_no_row(store, tmp_path):
    (tmp_path / "profile").touch()
    outcome, _ = called(store, ProfilerOptions(torch_profiler=ProfiledCalls(step="toy")))
    assert outcome.failures == [] and outcome.columns["mean"].null_count == 0


STEPS = {"toy": toy("Blurs"), "crc": toy("Checksum"), "all": toy("Everything")}


@pytest.mark.parametrize(
    ("options", "code", "names"),
    [
        ({"torch_profiler": ProfiledCalls(step="tyo")}, "FK-PROFILER-STEP", "--torch-profiler tyo"),
        ({"py_spy": "all"}, "FK-PROFILER-STEP", "first pass"),
        (
            {"torch_profiler": ProfiledCalls(step="toy"), "memory_timeline": ProfiledCalls(step="toy")},
            "FK-PROFILERS-TOGETHER",
            "--torch-profiler and --memory-timeline",
        ),
        ({"nsight": ("toy",)}, "FK-NSIGHT-PROCESS", "--nsight toy"),
    ],
)
def test_profilers_that_cannot_record_are_refused(store, options, code, names):
    with pytest.raises(ConfigError) as refused:
        ProfilerOptions(**options).check(plan(STEPS), store, here=True)
    assert refused.value.code == code and names in str(refused.value)


def test_missing_tools_are_refused_on_this_machine(store, monkeypatch):
    grouped = plan(STEPS, {"steps": {"toy": {"group": "g"}}})
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(py_spy.sys, "executable", "/nowhere/python")
    for options, code in (({"nsight": ("toy",)}, "FK-NSIGHT-MISSING"), ({"py_spy": "toy"}, "FK-PY-SPY-MISSING")):
        with pytest.raises(ConfigError) as refused:
            ProfilerOptions(**options).check(grouped, store, here=True)
        assert refused.value.code == code
        assert ProfilerOptions(**options).check(grouped, store, here=False) == ""  # other machines cannot be checked
    with pytest.raises(ConfigError) as refused:
        ProfilerOptions(py_spy="toy").check(grouped, Store("s3://bucket/out?region=x"), here=False)
    assert refused.value.code == "FK-PROFILER-OUTPUT"
    assert ProfilerOptions(nvtx=True).check(grouped, store, here=True).startswith("--nvtx ")


def test_nsys_of_another_folder_becomes_the_one_that_ray_finds(store, tmp_path, monkeypatch):
    tool = tmp_path / "nsight" / "nsys"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("NSYS_CMD", str(tool))
    grouped = plan(STEPS, {"steps": {"toy": {"group": "g"}}})
    assert ProfilerOptions(nsight=("toy",)).check(grouped, store, here=True) == ""
    assert shutil.which("nsys") == str(tool)


def test_a_memory_timeline_of_a_step_without_torch_is_doubted_before_the_run(store):
    steps = {
        "lighting": {"use": "lighting"},
        "faces": {"use": "faces"},
    }
    checked_plan = plan(steps, missing_weights="dummy")
    doubt = ProfilerOptions(memory_timeline=ProfiledCalls(step="lighting")).check(checked_plan, store, here=True)
    assert doubt.startswith("--memory-timeline lighting ")
    assert ProfilerOptions(memory_timeline=ProfiledCalls(step="faces")).check(checked_plan, store, here=True) == ""


def test_ray_starts_nsys_for_the_named_steps_only(store, tmp_path):
    checked_plan = plan(STEPS, {"steps": {"toy": {"group": "g"}}})
    environment = ProfilerOptions(nsight=("toy",)).ray_options(checked_plan.first, store)["runtime_env"]
    nsight = environment["nsight"]
    assert nsight["o"] == f"{store.root}/profile/nsight/toy-{RUN}-%p" and "nvtx" in nsight["t"]
    assert NO_PROFILERS.ray_options(checked_plan.first, store) == {}
    odd = Store(str(tmp_path / "it's (1) née")).of_run(RUN).begin()
    place = ProfilerOptions(nsight=("toy",)).ray_options(checked_plan.first, odd)["runtime_env"]["nsight"]["o"]
    done = subprocess.run(f"echo {Path('/logs') / place}", shell=True, capture_output=True, text=True, check=True)
    assert done.stdout == f"{odd.root}/profile/nsight/toy-{RUN}-%p\n", "as Ray joins it, and its shell reads it"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_are_no_ranges():
    assert NvtxRanges("toy")(None, lambda: 3) == 3


def test_ranges_enclose_phases_of_networks_that_were_given_the_stages_phase():
    stage, marked = Checksum(), []
    inner = stage.phase  # as a network holds it that was built in the set-up

    @contextmanager
    def mark(name):
        marked.append(f"{name} {sorted(stage.clock.seconds)}")
        yield
        marked.append(f"{name} {sorted(stage.clock.seconds)}")

    stage.annotate = mark
    with inner("infer"):
        pass
    assert marked == ["infer []", "infer ['infer']"]


@pytest.mark.parametrize("text", ["toy:", "toy:0", "toy:x", "toy:-1"])
def test_a_number_of_calls_is_a_whole_number_above_zero(text):
    with pytest.raises(ConfigError) as refused:
        ProfiledCalls.parse("--torch-profiler", text)
    assert refused.value.code == "FK-PROFILER-CALLS"
    assert ProfiledCalls.parse("--torch-profiler", "toy:7") == ProfiledCalls(step="toy", calls=7)


def spin(store, seconds, _=None):
    """Compute for a while after py-spy has begun to sample."""
    while not any("Sampling" in path.read_text() for path in Path(store.root, PY_SPY).glob("*.log")):
        time.sleep(0.02)
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(1000))


@pytest.fixture
def spy():
    try:
        py_spy.check()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.mark.heavy
def test_a_flame_graph_names_the_functions_that_ran(store, spy, monkeypatch):
    monkeypatch.setattr(py_spy, "_WRITE_S", 200.0)  # on a busy machine
    options = ProfilerOptions(py_spy="toy")
    step = plan({"toy": toy("Blurs")}).first[0]
    options.caller(step, store)(partial(spin, store, 2.0), None)
    (printed,) = options.report(store)
    (name,) = store.names(PY_SPY)
    assert printed == f"--py-spy: 1 files in {store.root}/{PY_SPY}"
    assert name.startswith(f"toy-{RUN}-") and b"spin" in store.read(f"{PY_SPY}/{name}")


def logged(store):
    """Wait until py-spy has written into its log."""
    while not any(path.stat().st_size for path in Path(store.root, PY_SPY).glob("*.log")):
        time.sleep(0.02)


def test_a_py_spy_that_fails_leaves_its_reason(store, monkeypatch, tmp_path):
    other = tmp_path / "py-spy"
    other.write_text("#!/bin/sh\necho 'Permission Denied' >&2\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setattr(py_spy.shutil, "which", lambda *_, **__: str(other))
    with pytest.raises(ConfigError) as refused:
        py_spy.check()
    assert refused.value.code == "FK-PY-SPY-FORBIDDEN" and "Permission Denied" in str(refused.value)
    options = ProfilerOptions(py_spy="toy")
    options.caller(plan({"toy": toy("Blurs")}).first[0], store)(lambda _: logged(store), None)
    assert list(options.report(store)) == ["--py-spy: py-spy wrote nothing (Permission Denied)."]
    assert [name.endswith(FAILED) for name in store.names(PY_SPY)] == [True]


def test_a_graph_without_a_sample_is_a_reason(store, monkeypatch, tmp_path):
    other = tmp_path / "py-spy"
    other.write_text("#!/bin/sh\necho '<svg/>' >\"$5\"\necho 'Wrote. Samples: 0 Errors: 7' >&2\n")
    other.chmod(0o755)
    monkeypatch.setattr(py_spy.shutil, "which", lambda name, **_: str(other) if name == "py-spy" else None)
    options = ProfilerOptions(py_spy="toy")
    options.caller(plan({"toy": toy("Blurs")}).first[0], store)(lambda _: logged(store), None)
    assert list(options.report(store)) == ["--py-spy: py-spy wrote nothing (Wrote. Samples: 0 Errors: 7)."]
    assert [name.endswith(FAILED) for name in store.names(PY_SPY)] == [True]


def test_a_py_spy_that_does_not_answer_is_refused(monkeypatch, tmp_path):
    other = tmp_path / "py-spy"
    other.write_text("#!/bin/sh\nexec sleep 600\n")
    other.chmod(0o755)
    monkeypatch.setattr(py_spy.shutil, "which", lambda *_, **__: str(other))
    monkeypatch.setattr(py_spy, "_TRIAL_S", 0.1)
    with pytest.raises(ConfigError) as refused:
        py_spy.check()
    assert refused.value.code == "FK-PY-SPY-FORBIDDEN" and "did not answer" in str(refused.value)


PIPELINE = "steps: {toy: {use: 'tests.toys:Blurs'}, other: {use: 'tests.toys:Checksum'}}"


@pytest.mark.heavy
@pytest.mark.slow
def test_a_run_prints_the_folders_of_its_recordings(tmp_path, framekiln, spy):
    for i in range(12):
        photo(tmp_path / "in" / f"photo{i}.png", i)
    (tmp_path / "p.yaml").write_text(PIPELINE)
    profile = "{steps: {toy: {batch: 2, group: g, workers: 1}}}"  # one process of Ray's has the step
    (tmp_path / "profile.yaml").write_text(profile)
    words = ["--torch-profiler", "toy:2", "--memory-timeline", "other:1", "--py-spy", "toy", "--nvtx"]
    where = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--pipeline", tmp_path / "p.yaml"]
    printed = framekiln("run", *where, "--engine", "ray", "--profile", tmp_path / "profile.yaml", *words)
    assert "--nvtx marks nothing" in printed
    assert "--memory-timeline: step other could not be recorded" in printed, printed
    for option, folder, most in (("--torch-profiler", "torch", 3), ("--py-spy", "py-spy", 1)):
        assert f"{option}: {most} files in {tmp_path}/out/profile/{folder}\n" in printed, printed
