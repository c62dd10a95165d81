"""The command line as people use it: in a process of its own, from anywhere, with mistakes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.ledger import COLUMNS
from pipeline.second import FRAMES
from pipeline.step import DUMMY
from pipeline.storage import Store
from tests.collections_factory import clip, photo

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "pipeline" / "run.py"
ORDER = [("media_id", "ascending"), ("frame_index", "ascending")]


def command(*words, cwd=ROOT, door=RUN, **env):
    return subprocess.run(
        [sys.executable, str(door), *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", **env},
    )


def frames(out) -> pa.Table:
    store = Store(str(out))
    return pa.concat_tables([store.read_table(f"{FRAMES}/{name}") for name in store.names(FRAMES)]).sort_by(ORDER)


@pytest.fixture
def small(tmp_path):
    for i in range(6):
        photo(tmp_path / "in" / f"photo{i}.png", i)
    clip(tmp_path / "in" / "zz.png", 100, 30)
    return tmp_path / "in"


@pytest.fixture
def pipeline(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text("steps:\n  crc: {use: 'tests.toys:Checksum'}\n  count: {use: 'tests.toys:Count'}\n")
    return path


MISTAKES = {
    "missing folder": (["--input", "photoz", "--output", "{out}"], "There is no 'photoz'"),
    "near name": (["--input", "{in}/../inn", "--output", "{out}"], "Did you mean 'in'"),
    "a name that writes on the terminal": (["--input", "[bold]a\x1b[2J\x07", "--output", "{out}"], "[bold]a%1B[2J%07'"),
    "an option that does": (["--input", "{in}", "--output", "{out}", "--shard", "[red]\x1b[2J/2"], "[red]\\x1b[2J/2"),
    "empty folder": (["--input", "{empty}", "--output", "{out}"], "holds no files"),
    "no input": ([], "No input was given: use --input PATH"),
    "no output": (["--input", "{in}"], "No output was given: use --output PATH"),
    "unwritable output": (["--input", "{in}", "--output", "{pipeline}/out"], "cannot be written"),
    "unknown profile": (["--input", "{in}", "--output", "{out}", "--profile", "cpu-olny"], "Did you mean 'cpu-only'"),
    "unknown step": (["--input", "{in}", "--output", "{out}", "--stages", "crk"], "Did you mean 'crc'"),
    "unknown setting": (["--input", "{in}", "--output", "{out}", "--set", "crc.colum=frame"], "Did you mean 'column'"),
    "bad shard": (["--input", "{in}", "--output", "{out}", "--shard", "3/2"], "not of the form I/N"),
    "no cluster": (
        ["--input", "{in}", "--output", "{out}", "--address", "127.0.0.1:1"],
        "No Ray cluster answers at '127.0.0.1:1'",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2(case, small, pipeline, tmp_path):
    words, message = MISTAKES[case]
    (tmp_path / "empty").mkdir()
    places = {"in": small, "out": tmp_path / "out", "empty": tmp_path / "empty", "pipeline": pipeline}
    done = command("--pipeline", pipeline, *[word.format(**places) for word in words])
    assert done.returncode == 2, done
    assert done.stderr.strip().isprintable()
    assert message in done.stderr and done.stderr.startswith("Error: ") and len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr + done.stdout


def test_a_missing_folder_does_not_list_its_neighbours(pipeline, tmp_path):
    done = command("--pipeline", pipeline, "--input", tmp_path / "quite-else", "--output", tmp_path / "out")
    assert (
        done.returncode == 2 and done.stderr.strip().endswith("Check the path.") and "pipeline.yaml" not in done.stderr
    )


def test_plan_asks_the_cluster_of_the_shell_as_run_does(pipeline):
    done = command("plan", "--pipeline", pipeline, RAY_ADDRESS="127.0.0.1:1")
    assert done.returncode == 2 and "No Ray cluster answers at '127.0.0.1:1'" in done.stderr


def test_an_unknown_option_suggests_the_right_one():
    done = command("--profil", "cpu-only")
    assert done.returncode == 2 and "--profile" in done.stderr


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in ("run", "plan", "fetch", "columns"))])
def test_help_reads(words):
    done = command(*words)
    assert done.returncode == 0 and "Usage: framemill" in done.stdout
    if "run" in words or words == ["--help"]:
        assert "Examples" in done.stdout and "ray submit" in done.stdout


def test_plan_and_dry_run_start_nothing(pipeline):
    plan, dry = command("plan", "--pipeline", pipeline), command("--pipeline", pipeline, "--dry-run")
    assert plan.returncode == dry.returncode == 0
    assert plan.stdout == dry.stdout and "crc" in plan.stdout and "frame" in plan.stdout


def test_the_plan_of_a_run_says_what_is_to_do_and_touches_nothing(small, pipeline, tmp_path):
    words = ["--pipeline", pipeline, "--input", small, "--output", tmp_path / "out"]
    done, dry = command("plan", *words), command(*words, "--dry-run")
    assert done.returncode == 0 and done.stdout == dry.stdout, done.stderr
    assert done.stdout.count("7 new files") == 3 and not (tmp_path / "out").exists()
    few = command("plan", *words, "--limit", "2")
    assert few.stdout.count("2 new files") == 3
    wrong = command("plan", "--pipeline", pipeline, "--input", tmp_path / "no", "--output", tmp_path / "out")
    assert wrong.returncode == 2 and "There is no" in wrong.stderr and "Traceback" not in wrong.stderr


def test_a_cap_on_cards_that_nothing_runs_on_is_said_to_do_nothing(framemill, small, pipeline, tmp_path):
    said = "--vram-cap does nothing: no step runs on a GPU."
    assert said in command("plan", "--pipeline", pipeline, "--vram-cap", "8").stdout
    assert said not in command("plan", "--pipeline", pipeline).stdout
    words = ("--pipeline", pipeline, "--input", small, "--output", tmp_path / "out", "--limit", 1, "--vram-cap", 8)
    told = framemill("run", *words)
    assert said in told and "1 frame in" in told and "1 file (" in told


def test_a_plan_that_does_not_fit_is_shown_and_then_refused():
    done = command("plan", "--profile", "high-throughput", "--set", "pose.workers=1000")
    assert done.returncode == 2 and "1000" in done.stdout and "motion_mean" in done.stdout
    assert done.stderr.startswith("Error: Step 'segment' wants 1 CPU and 0.35 GPU")


def test_columns_of_the_shipped_pipeline():
    done = command("columns")
    assert done.returncode == 0
    for word in ("media_id", "exposure", "motion_mean", "poses", "lighting_steadiness"):
        assert word in done.stdout


@pytest.fixture
def lacking(tmp_path):
    """A pipeline with a step whose weights are nowhere, and a reader of it; a machine without any weights."""
    path = tmp_path / "lacking.yaml"
    steps = {"crc": "Checksum", "seeded": "Seeded", "count": "Bytes"}
    path.write_text("steps:\n" + "".join(f"  {name}: {{use: 'tests.toys:{toy}'}}\n" for name, toy in steps.items()))
    return ["--pipeline", path], {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_the_plan_shows_what_is_missing_and_what_skipping_leaves_out(lacking):
    words, env = lacking
    plain, skipping = command("plan", *words, **env), command("plan", *words, "--missing-weights", "skip", **env)
    assert plain.returncode == skipping.returncode == 0
    assert (
        "pose_landmarker_heavy (missing)" in plain.stdout and "pose_landmarker_heavy (missing)" not in skipping.stdout
    )
    assert "Left out by --missing-weights skip: seeded: pose_landmarker_heavy.task" in plain.stdout
    assert "Left out: count: it reads 'byte' of 'seeded'" in skipping.stdout
    for done in (plain, skipping):
        assert "To get what is missing: framemill fetch pose_landmarker_heavy" in done.stdout
    random = command("plan", *words, "--missing-weights", "dummy", **env)
    assert "pose_landmarker_heavy (random)" in random.stdout and "Left out" not in random.stdout


def test_without_weights_a_run_tells_the_command_that_gets_them(lacking, small, tmp_path):
    words, env = lacking
    done = command(*words, "--input", small, "--output", tmp_path / "out", **env)
    assert done.returncode == 2 and "Traceback" not in done.stderr and not (tmp_path / "out").exists()
    assert "To get them: framemill fetch pose_landmarker_heavy" in done.stderr


@pytest.mark.slow
def test_a_run_without_weights_skips_or_takes_random_ones_and_says_so(framemill, lacking, small, tmp_path, monkeypatch):
    words, env = lacking
    for name, value in (env | {"COLUMNS": "200"}).items():
        monkeypatch.setenv(name, value)
    order = ["run", *words, "--input", small, "--output", tmp_path / "out", "--missing-weights"]
    framemill(*order, "skip", "--stages", "crc")
    skipped = framemill(*order, "skip")
    assert "Left out: seeded: pose_landmarker_heavy.task" in skipped and "36 frames" in skipped
    assert "Nothing is left to do" in skipped, "what is told of it is new all the same"
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["skipped"].keys() == {"seeded", "count"} and list(record["steps"]) == ["crc"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Left out" in page and "<pre>framemill fetch pose_landmarker_heavy</pre>" in page
    assert "byte" not in frames(tmp_path / "out").column_names and not marks(tmp_path / "out")

    random = framemill(*order, "dummy")
    assert random.count("Random weights in seeded") == 2
    assert marks(tmp_path / "out") == {"frames": b"seeded", "bytes": b"seeded", "seeded": b"seeded"}
    assert frames(tmp_path / "out")["byte"].null_count == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert '<p class="verdict bad random">Random weights in seeded' in page and "Left out" not in page
    again = framemill(*order, "dummy")
    assert "Nothing is left to do" in again and "Random weights in seeded" in again


def marks(out) -> dict[str, bytes]:
    """By table or step, which steps its files say had random weights."""
    files = [path for path in Path(out).rglob("*.parquet") if ".errors" not in path.name]
    metadata = {path: pq.read_schema(path).metadata or {} for path in files}
    return {
        path.parent.name.split("-")[0]: found[DUMMY.encode()]
        for path, found in metadata.items()
        if DUMMY.encode() in found
    }


@pytest.mark.slow
def test_run_from_a_lone_copy_with_places_from_the_profile_and_again(small, pipeline, tmp_path):
    shutil.copy(RUN, tmp_path / "run.py")
    (tmp_path / "mine.yaml").write_text(f"input: {small}\noutput: out\n")
    words, env = ("--pipeline", pipeline, "--profile", "mine.yaml"), {"PYTHONPATH": str(ROOT)}
    first = command(*words, cwd=tmp_path, door=tmp_path / "run.py", **env)
    assert first.returncode == 0, first.stderr
    assert "36 frames" in first.stdout
    second = command("--pipeline", pipeline, "--input", small, "--output", tmp_path / "out")
    assert second.returncode == 0 and "Nothing is left to do" in second.stdout
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (record["files"], record["frames"], record["figures"]["crc"]["rows"]) == (7, 36, 36)
    quiet = command("--pipeline", pipeline, "--input", small, "--output", tmp_path / "out", "--quiet")
    assert (quiet.returncode, quiet.stdout) == (0, "")


def test_every_command_is_behind_the_door_that_ray_submit_copies(tmp_path):
    for words, said in (
        (("profile", "nowhere"), "There is no folder"),
        (("--shard", "3/2"), "of the form I/N"),
        (("plan", "--shard", "3/2"), "of the form I/N"),
    ):
        found = command(*words, cwd=tmp_path)
        assert found.returncode == 2 and said in found.stderr, found.stderr


def interrupt(words, out, presses=1):
    """Exit code and stderr of a run that gets Ctrl-C as soon as it has written something."""
    run = subprocess.Popen([sys.executable, str(RUN), *words], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list((out / COLUMNS).rglob("*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    for _ in range(presses):
        run.send_signal(signal.SIGINT)
        time.sleep(0.1)
    said = run.communicate(timeout=60)[1]
    return run.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize("presses", [pytest.param(1, marks=pytest.mark.chaos), 2])
def test_ctrl_c_stops_cleanly_and_the_next_run_goes_on(framemill, small, pipeline, tmp_path, presses):
    ends = []
    for attempt in range(3):  # on a busy machine it was seen to crash after its last word, at the interpreter's end
        out = tmp_path / f"out{attempt}"
        words = ["--pipeline", str(pipeline), "--input", str(small), "--output", str(out)]
        ends.append(interrupt(words, out, presses))
        if ends[-1][0] == 130:
            break
    code, said = ends[-1]
    assert code == 130 and said.startswith("Interrupted.") and "Traceback" not in said, ends
    framemill("run", *words)
    assert frames(out).num_rows == 36


@pytest.mark.slow
def test_the_one_liners_of_the_readme_work(framemill, collection, tmp_path):
    few = ("--set", "categorize.categories=[cat, dog]", "--set", "categorize.templates=['{}']", "--limit", "2")
    words = ("--stages", "lighting,flow,categorize,identities", "--missing-weights", "dummy", *few)
    framemill("run", "--input", collection, "--output", tmp_path / "out", *words)
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("python -c ")]
    assert len(lines) == 4
    for line in lines:
        words = [sys.executable, *shlex.split(line)[1:]]
        shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert shown.returncode == 0 and ("flower.jpg" in shown.stdout or "identity" in shown.stdout), shown.stderr
