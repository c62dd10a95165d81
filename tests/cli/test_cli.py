"""The command line as people use it: plans, help and mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from tests.support.machine.command_line import ROOT, command, process

MISTAKES = {
    "missing folder": (["--input", "photoz", "--output", "{out}"], "[FK-INPUT-MISSING]"),
    "near name": (["--input", "{in}/../inn", "--output", "{out}"], "[FK-INPUT-MISSING]", "'in'"),
    "a name with terminal codes": (["--input", "[bold]a\x1b[2J\x07", "--output", "{out}"], "[bold]a%1B[2J%07'"),
    "an option of that kind": (
        ["--input", "{in}", "--output", "{out}", "--shard", "[red]\x1b[2J/2"],
        "[red]\\x1b[2J/2",
    ),
    "empty folder": (["--input", "{empty}", "--output", "{out}"], "[FK-INPUT-NO-FILES]"),
    "empty input": (["--input", "", "--output", "{out}"], "[FK-NO-INPUT]"),
    "no output": (["--input", "{in}"], "[FK-NO-OUTPUT]"),
    "unwritable output": (["--input", "{in}", "--output", "{pipeline}/out"], "[FK-OUTPUT-NOT-WRITABLE]"),
    "unknown profile": (
        ["--input", "{in}", "--output", "{out}", "--profile", "cpu-olny"],
        "[FK-UNKNOWN-PROFILE]",
        "'cpu-only'",
    ),
    "unknown step": (["--input", "{in}", "--output", "{out}", "--stages", "crk"], "[FK-UNKNOWN-STEP]", "'crc'"),
    "unknown setting": (
        ["--input", "{in}", "--output", "{out}", "--set", "crc.colum=frame"],
        "[FK-UNKNOWN-SETTING]",
        "'column'",
    ),
    "bad shard": (["--input", "{in}", "--output", "{out}", "--shard", "3/2"], "[FK-BAD-SHARD]"),
    "no cluster": (
        ["--input", "{in}", "--output", "{out}", "--address", "127.0.0.1:1"],
        "[FK-NO-CLUSTER]",
        "'127.0.0.1:1'",
    ),
}


IN_RAY = "no cluster"  # a process imports Ray for seconds, and this one would keep a Ray that is half started


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.heavy] if case == IN_RAY else []) for case in MISTAKES]
)
def test_a_mistake_is_one_sentence_and_exit_code_2(case, small, pipeline, tmp_path, serial):
    words, *values = MISTAKES[case]
    (tmp_path / "empty").mkdir()
    places = {"in": small, "out": tmp_path / "out", "empty": tmp_path / "empty", "pipeline": pipeline}
    call = process if case == IN_RAY else command
    done = call("--pipeline", pipeline, *[word.format(**places) for word in words], FRAMEKILN_ENGINE="auto")
    assert done.returncode == 2, done
    assert done.stderr.strip().isprintable()
    assert all(value in done.stderr for value in values)
    assert done.stderr.startswith("Error: ") and len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr + done.stdout


def test_a_missing_folder_does_not_list_its_neighbours(pipeline, tmp_path, serial):
    done = command("--pipeline", pipeline, "--input", tmp_path / "quite-else", "--output", tmp_path / "out")
    assert done.returncode == 2 and "[FK-INPUT-MISSING]" in done.stderr and "pipeline.yaml" not in done.stderr


@pytest.mark.heavy  # Ray looks for a cluster for seconds
def test_plan_joins_the_cluster_of_the_environment_as_run_does(pipeline):
    done = process("plan", "--pipeline", pipeline, RAY_ADDRESS="127.0.0.1:1")
    assert done.returncode == 2 and "[FK-NO-CLUSTER]" in done.stderr


def test_version():
    done = process("--version")
    assert (done.returncode, done.stdout) == (0, f"framekiln {version('framekiln')}\n")


def test_completion_knows_commands_and_options_without_heavy_libraries():
    for words, expected in (("framekiln ca", "calibrate"), ("framekiln run --vram", "--vram-cap")):
        place = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_FRAMEKILN_COMPLETE": "complete_bash"}
        call = [sys.executable, "-X", "importtime", "-m", "framekiln"]
        done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, env=os.environ | place)
        assert done.stdout.split() == [expected], done.stderr
        loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
        assert not loaded & {"torch", "ray", "cv2", "av", "scipy", "sklearn", "pandas", "transformers", "matplotlib"}


def test_an_unknown_option_suggests_the_right_one():
    done = command("--profil", "cpu-only")
    assert done.returncode == 2 and "--profile" in done.stderr


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in ("run", "plan", "fetch", "columns"))])
def test_help_is_complete(words):
    done = command(*words)
    assert done.returncode == 0 and "Usage: framekiln" in done.stdout
    if "run" in words or words == ["--help"]:
        assert "Examples" in done.stdout and "ray submit" in done.stdout


def test_plan_and_dry_run_start_nothing(pipeline):
    plan, dry = command("plan", "--pipeline", pipeline), command("--pipeline", pipeline, "--dry-run")
    assert plan.returncode == dry.returncode == 0
    assert plan.stdout == dry.stdout and "crc" in plan.stdout and "frame" in plan.stdout


def test_the_plan_of_a_run_shows_the_work_left_and_writes_nothing(small, pipeline, tmp_path):
    words = ["--pipeline", pipeline, "--input", small, "--output", tmp_path / "out"]
    done, dry = command("plan", *words), command(*words, "--dry-run")
    assert done.returncode == 0 and done.stdout == dry.stdout, done.stderr
    assert done.stdout.count("7 new files") == 3 and not (tmp_path / "out").exists()
    few = command("plan", *words, "--limit", "2")
    assert few.stdout.count("2 new files") == 3
    wrong = command("plan", "--pipeline", pipeline, "--input", tmp_path / "no", "--output", tmp_path / "out")
    assert wrong.returncode == 2 and "[FK-INPUT-MISSING]" in wrong.stderr and "Traceback" not in wrong.stderr


def test_a_cap_without_a_step_on_a_gpu_is_reported(pipeline):
    note = "--vram-cap does nothing: no step runs on a GPU."
    assert note in command("plan", "--pipeline", pipeline, "--vram-cap", "8").stdout
    assert note not in command("plan", "--pipeline", pipeline).stdout


def test_a_plan_that_does_not_fit_is_shown_and_then_refused():
    done = command("plan", "--profile", "high-throughput", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3 and "motion_mean" in done.stdout
    assert "segment" in done.stderr and "[FK-NO-GPU]" in done.stderr


def test_columns_of_the_shipped_pipeline():
    done = command("columns")
    assert done.returncode == 0
    for word in ("media_id", "exposure", "motion_mean", "poses", "lighting_steadiness"):
        assert word in done.stdout


def test_the_plan_shows_missing_weights_and_the_steps_that_skipping_leaves_out(lacking):
    words, env = lacking
    plain, skipping = command("plan", *words, **env), command("plan", *words, "--missing-weights", "skip", **env)
    assert plain.returncode == skipping.returncode == 0
    assert (
        "pose_landmarker_heavy (missing)" in plain.stdout and "pose_landmarker_heavy (missing)" not in skipping.stdout
    )
    assert "Weights are missing: seeded: pose_landmarker_heavy.task" in plain.stdout
    assert "Left out: count: it reads 'byte' of 'seeded'" in skipping.stdout
    for done in (plain, skipping):
        assert "To fetch what is missing: framekiln fetch pose_landmarker_heavy" in done.stdout
    random = command("plan", *words, "--missing-weights", "dummy", **env)
    assert "pose_landmarker_heavy (random)" in random.stdout and "Left out" not in random.stdout


def test_a_plan_of_a_run_that_would_stop_for_weights_says_so(lacking, small, tmp_path):
    words, env = lacking
    places = ("--input", small, "--output", tmp_path / "out")
    plain, skipping = (command("plan", *words, *places, *more, **env) for more in ((), ("--missing-weights", "skip")))
    assert plain.returncode == 3 and "[FK-WEIGHTS-MISSING]" in plain.stderr and "files to do" in plain.stdout
    assert skipping.returncode == 0 and skipping.stderr == ""


def test_without_weights_a_run_names_the_command_that_fetches_them(lacking, small, tmp_path, serial):
    words, env = lacking
    done = command(*words, "--input", small, "--output", tmp_path / "out", **env)
    assert done.returncode == 2 and "[FK-WEIGHTS-MISSING]" in done.stderr and not (tmp_path / "out").exists()
    assert "framekiln fetch pose_landmarker_heavy" in done.stderr


def test_the_script_for_ray_submit_has_every_command(tmp_path):
    for words, value in (
        (("profile", "nowhere"), "nowhere"),
        (("plan", "--shard", "3/2"), "[FK-BAD-SHARD]"),
    ):
        done = process(*words, cwd=tmp_path)
        assert done.returncode == 2 and value in done.stderr, done.stderr
