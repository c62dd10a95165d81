"""Tables, run.json and the report of a run that is at work, was killed, interrupted, or stopped by an error."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest

from framekiln.contract.output_names import ERRORS, FRAMES
from framekiln.job import Job
from framekiln.job import job as job_module
from framekiln.runtime.run.record import sealed
from tests.faults import chaos
from tests.support.machine.command_line import command
from tests.support.runs.engine_factory import order, rows, small
from tests.support.runs.serial_engine import without_ray
from tests.support.runs.unfinished import Gated

__all__ = ["small"]

pytestmark = pytest.mark.slow

HELD, FILES = "photo5.png", 7  # the last of six photos, and a clip of 30 frames


@pytest.fixture
def gated(small, tmp_path):
    (small / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no photo")
    made = Gated.make(tmp_path, small, HELD)
    yield made
    made.end()


def undisturbed(gated: Gated, *words: object) -> None:
    """A run, or another command that computes, that is only there to be compared with: in this process."""
    with without_ray():
        done = command(*(words or gated.words()))
    assert done.returncode == 0, done.stdout + done.stderr


def same(gated: Gated, tmp_path) -> None:
    """Compare all tables with those of a run of the same files that nothing disturbed."""
    other = Gated(gated.source, tmp_path / "other", gated.gate, gated.pipeline)
    undisturbed(other)
    for name in (FRAMES, ERRORS, "counts"):
        mine, its = (rows(one.out, name).sort_by("media_id") for one in (gated, other))
        leave = [column for column in ("traceback",) if column in mine.column_names]
        assert mine.drop_columns(leave).to_pylist() == its.drop_columns(leave).to_pylist(), name
    assert chaos.leftovers(gated.out) == []


def commands(gated: Gated, other: Gated, how: str) -> None:
    """Check that every reading command takes the output and says how its run stands."""
    reported = command("report", gated.out)
    assert reported.returncode == 0, reported.stderr
    page = gated.page
    assert f"Unfinished: {FILES} of {FILES + 1} files" in page and how in page
    assert f"framekiln {' '.join(gated.words())}" in page, "the command that continues"
    checked = command("check", gated.out)
    assert (checked.returncode, how in checked.stdout) == (0, True), checked.stdout
    profiled = command("profile", gated.out)
    assert (profiled.returncode, how in profiled.stderr, "crc" in profiled.stdout) == (0, True, True)
    compared = command("compare", gated.out, other.out)
    assert compared.returncode == 0 and f"{gated.out} is unfinished. The run {how}" in " ".join(compared.stdout.split())
    assert "[FK-PREDICT-UNFINISHED]" in command("predict", gated.out, "--for", "l4").stderr
    assert "[FK-PRUNE-UNFINISHED]" in command("prune", gated.out).stderr


@pytest.mark.heavy
def test_an_output_is_whole_as_far_as_it_goes_during_a_run_and_after_its_death(engine, gated, tmp_path):
    other = Gated(gated.source, tmp_path / "whole", tmp_path / "open", tmp_path / "whole.yaml")
    other.set("nothing")
    undisturbed(other)
    run = gated.start()
    gated.wait(run, FILES)
    record = gated.record
    assert (record["state"], record["files"], record["frames"], record["errors"]) == (
        "running",
        8,
        35,
        {"truncated": 1},
    )
    assert (
        gated.frames()
        .drop_columns(["passed"])
        .equals(other.frames().filter([name != HELD for name in other.names()]).drop_columns(["passed"]))
    )
    assert [row["media_id"] for row in rows(gated.out, ERRORS).to_pylist()] == ["broken.jpg"]
    commands(gated, other, "is at work")

    chaos.wait_for_end(chaos.kill(run))
    assert gated.record["state"] == "running", "it had no time to say anything else"
    commands(gated, other, "was killed")
    gated.gate.touch()
    for words, env in ((["retry", gated.out], {"FRAMEKILN_ENGINE": "local"}), (gated.words(), {})):
        copy = Gated(gated.source, tmp_path / words[0], gated.gate, gated.pipeline)
        shutil.copytree(gated.out, copy.out)
        done = command(*[copy.out if word in (gated.out, str(gated.out)) else word for word in words], **env)
        assert done.returncode == 0, done.stdout + done.stderr
        assert words[0] != "retry" or "was killed" in done.stdout
        assert copy.record["state"] == "finished" and "Unfinished" not in copy.page
        same(copy, tmp_path / words[0])


@pytest.mark.parametrize(
    ("engine", "number"),
    [
        ("local", signal.SIGINT),
        *(pytest.param(*each, marks=pytest.mark.heavy) for each in (("local", signal.SIGTERM), ("ray", signal.SIGINT))),
    ],
    indirect=["engine"],
)
def test_an_interrupted_run_writes_what_is_finished(engine, gated, tmp_path, number):
    run = gated.start(eager=False)
    gated.wait_for_parts(run, FILES)
    assert not gated.names(), "this run would write its first tables after 20 s"
    os.killpg(run.pid, number)
    code, _, stderr = chaos.ended(run)
    assert code == 128 + number
    assert stderr == f"Interrupted. Tables of {FILES} of {FILES + 1} files are written; the same command continues.\n"
    assert (gated.record["state"], gated.record["reason"]) == ("stopped", "interrupted")
    assert len(gated.names()) == 35 and HELD not in gated.names()
    assert "was interrupted" in gated.page
    if number == signal.SIGINT:
        gated.gate.touch()
        assert command(*gated.words()).returncode == 0
        same(gated, tmp_path)


@pytest.mark.parametrize("before", [False, pytest.param(True, marks=pytest.mark.heavy)])
def test_a_run_is_interrupted_before_its_conditions_are_settled(local, gated, before):
    where, pipeline = "passed >= 0 and media_id in (select media_id from counts)", gated.pipeline.read_text()
    if before:
        gated.pipeline.write_text("steps: {crc: {use: 'tests.toys:Checksum'}}")
        undisturbed(gated)
    gated.pipeline.write_text(f"{pipeline}  twice: {{use: 'tests.toys:Double', on: {{first: 99}}, where: '{where}'}}\n")
    run = gated.start(eager=False)
    gated.wait_for_parts(run, FILES)
    os.killpg(run.pid, signal.SIGINT)
    assert chaos.ended(run)[0] == 130
    own = gated.record["unfinished"] if before else gated.record
    assert (own["state"], own["reason"], own["files_done"]) == ("stopped", "interrupted", FILES if before else 0)
    assert "was interrupted" in command("report", gated.out).stdout + gated.page
    checked = command("check", gated.out, "--json")
    told = json.loads(checked.stdout)
    assert (checked.returncode, told["findings"], bool(told["unfinished"])) == (0, [], True)
    selected = command("select", gated.out, "--where", "crc > 0")
    assert ("FK-SELECTION-TABLE" in selected.stderr) != before, selected.stderr
    gated.gate.touch()
    undisturbed(gated, "retry", gated.out)
    assert gated.record["state"] == "finished" and gated.frames()["twice"].null_count == 0


def test_an_error_that_stops_a_run_leaves_tables_and_its_code(local, gated):
    gated.set(HELD, breaks=True)
    run = gated.start(eager=False)
    gated.wait_for_parts(run, FILES)
    gated.gate.touch()
    code, _, stderr = chaos.ended(run)
    assert code == 1 and "[FK-UNDECLARED-COLUMNS]" in stderr, stderr
    assert (gated.record["state"], gated.record["reason"]) == ("stopped", "FK-UNDECLARED-COLUMNS")
    assert len(gated.names()) == 35
    assert "was stopped [FK-UNDECLARED-COLUMNS]" in gated.page


@pytest.mark.heavy
def test_a_drawing_that_kills_its_process_costs_an_early_report_and_nothing_else(local, gated):
    gated.set(HELD, fatal=True)
    run = gated.start()
    gated.wait_for_tables(run, FILES)
    written = gated.record["written"]
    gated.wait_for_tables(run, FILES, since=written)
    assert "7 of 8" not in gated.page and gated.record["state"] == "running"
    gated.gate.touch()
    code, _, stderr = chaos.ended(run)
    assert (code, stderr, len(gated.names())) == (0, "", 36)
    assert "Unfinished" not in gated.page


def test_a_run_that_was_killed_after_its_last_table_is_finished_by_the_next(serial, gated):
    gated.gate.touch()
    assert command(*gated.words()).returncode == 0
    finished = gated.record
    killed = sealed(finished | {"state": "running", "files_done": 3, "frames": 5})
    (gated.out / "run.json").write_text(json.dumps(killed))
    assert "was killed" in command("check", gated.out).stdout
    shard = command(*gated.words("--shard", "1/2"))
    assert shard.returncode == 0 and gated.record["state"] == "running", "a shard is not the whole"
    done = command(*gated.words())
    assert "Nothing is left to do" in done.stdout
    assert sealed(gated.record | {"written": ""}) == sealed(finished | {"written": ""})
    assert "Unfinished" not in gated.page


def test_an_interruption_after_the_last_table_finds_all_files_counted(serial, small, tmp_path, monkeypatch, machines):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(job_module.RunSoFar, "conclude", interrupted)
    job = Job(order(small, tmp_path / "out", {"crc": ("Checksum", {})}))
    with pytest.raises(KeyboardInterrupt):
        job.run()
    files = len(list(small.iterdir()))
    assert job.extent == f"Tables of {files} of {files} files are written"
    assert json.loads((tmp_path / "out" / "run.json").read_text())["files_done"] == files
