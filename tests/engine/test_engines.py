"""The two engines: which one a run takes, what the local one leaves behind, and that both give the same tables."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from framekiln.contract.errors import ConfigError, StartError
from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.engine import choice as engines
from framekiln.engine.choice import choose, started_ahead
from framekiln.job import Job
from framekiln.media.files import MediaFile
from framekiln.media.units import Unit
from framekiln.output.object_store import Store
from framekiln.planning.manifest import read_pipeline, read_profile
from framekiln.profiling.tools.profilers import NO_PROFILERS, ProfilerOptions
from framekiln.runtime.run.record import read_run_record
from tests.faults import chaos
from tests.support.runs.engine_factory import order, rows
from tests.support.runs.plan_factory import plan

NSIGHT = ProfilerOptions(nsight=("a",))
LARGE = engines.SMALL_BYTES + 1
IMPORTED = """
import os, sys
from framekiln.cli.app import main

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # so that one process is started, not two

try:
    main()
except SystemExit as end:
    assert not end.code
print("ray" in sys.modules)
"""
STEPS = ("lighting", "flow", "features", "voice", "pose", "mouth", "shots", "tracks", "sync", "lighting_steadiness")


def asking(**changes):
    return replace(order("", "", {"crc": ("Checksum", {})}), **changes)


def units(size: int) -> list[Unit]:
    return [Unit(name="u", media=(MediaFile(media_id="a", path="/a", size=size, mtime_ns=0),))]


@pytest.mark.parametrize(
    ("asked", "address", "device", "size", "profilers", "chosen"),
    [
        ("auto", None, "cpu", 1000, NO_PROFILERS, "local"),
        ("auto", None, "cpu", LARGE, NO_PROFILERS, "ray"),
        ("auto", None, "cuda", 1000, NO_PROFILERS, "ray"),
        ("auto", "auto", "cpu", 1000, NO_PROFILERS, "ray"),
        ("auto", None, "cpu", 1000, NSIGHT, "ray"),
        ("ray", None, "cpu", 1000, NO_PROFILERS, "ray"),
        ("local", None, "cpu", LARGE, NO_PROFILERS, "local"),
        ("local", None, "cuda", 1000, NO_PROFILERS, "local"),
    ],
)
def test_the_choice(asked, address, device, size, profilers, chosen):
    steps = plan({"a": {"use": "tests.faults.stages:Poison"}}, {"steps": {"a": {"device": device, "gpus": 0.0}}})
    name, why = choose(asking(engine=asked, address=address, profilers=profilers), steps, units(size))
    assert name == chosen and why.startswith("Engine: ")


def test_a_size_that_is_taken_for_files_of_a_web_server_is_said_to_be_so():
    steps = plan({"a": {"use": "tests.faults.stages:Poison"}}, {"steps": {"a": {"device": "cpu"}}})
    (unit,) = units(0)
    _, told = choose(asking(), steps, [replace(unit, media=unit.media * 20_000)])
    assert "20,000 of them" in told and "2.6 GB" in told


@pytest.mark.parametrize(("address", "profilers"), [("auto", NO_PROFILERS), (None, NSIGHT)])
def test_what_only_ray_can_do_is_refused_by_the_local_engine(address, profilers):
    request = asking(engine="local", address=address, profilers=profilers)
    with pytest.raises(ConfigError) as error, started_ahead(request):
        pass
    assert error.value.code == "FK-ENGINE-LOCAL"


def test_a_process_that_no_engine_takes_is_ended():
    with started_ahead(asking(engine="auto")) as ahead:
        process = psutil.Process(int(ahead[0].name.rpartition(":")[2]))
        assert process.is_running()
    assert not process.is_running()
    with started_ahead(asking(engine="ray")) as ahead:
        assert ahead == []


def test_small_work_imports_no_ray(tmp_path):
    chaos.collection(tmp_path / "in")
    steps = chaos.pipeline(tmp_path / "steps.yaml", {"crc": "tests.toys:Checksum"})
    words = ["run", "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--pipeline", str(steps)]
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *words], cwd=chaos.ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "False", done.stdout + done.stderr


@pytest.mark.parametrize("asked", ["auto", "ray"])
def test_auto_goes_on_locally_where_ray_does_not_start(tmp_path, monkeypatch, asked):
    def refuse(*_):
        raise StartError("Ray did not start.", code="FK-RAY-START")

    monkeypatch.setattr("framekiln.engine.ray.session.session", refuse)
    monkeypatch.setattr(engines, "SMALL_BYTES", 0)
    chaos.collection(tmp_path / "in")
    wanted = replace(order(tmp_path / "in", tmp_path / "out", {"crc": ("Checksum", {})}), engine=asked)
    if asked == "auto":
        assert Job(wanted).run().frames == chaos.FRAME_COUNT
        assert read_run_record(Store(str(tmp_path / "out")))["engine"] == "local"
    else:
        with pytest.raises(StartError):
            Job(wanted).run()


def test_workers_end_with_a_killed_driver(tmp_path):
    chaos.collection(tmp_path / "in")
    pipeline = chaos.pipeline(tmp_path / "steps.yaml", slow="{seconds: 5.0}")
    run = chaos.start("-i", tmp_path / "in", "-o", tmp_path / "out", "--pipeline", pipeline, "--engine", "local")
    assert chaos.wait_for((tmp_path / "out" / "columns").exists, run), run.communicate()
    workers = psutil.Process(run.pid).children(recursive=True)
    run.kill()
    run.communicate()
    assert workers and psutil.wait_procs(workers, timeout=60)[1] == []


@pytest.mark.slow
@pytest.mark.heavy
def test_both_engines_give_the_same_tables(collection, tmp_path, machines):
    outs = {}
    for name in ("local", "ray"):
        wanted = order(collection, tmp_path / name, {}, missing_weights="skip", stages=STEPS)
        wanted = replace(wanted, pipeline=read_pipeline(None), profile=read_profile("cpu-only"), engine=name)
        outs[name] = Job(wanted).run()
    one, other = tmp_path / "local", tmp_path / "ray"
    assert outs["local"].frames == outs["ray"].frames == 14
    folders = sorted(path.name for path in one.iterdir() if any(path.glob("*.parquet")) and path.name != "profile")
    assert FRAMES in folders and "shots" in folders and ERRORS not in folders
    for folder in folders:
        assert sorted(map(str, rows(one, folder).to_pylist())) == sorted(map(str, rows(other, folder).to_pylist())), (
            folder
        )
