"""Several waves give the same results as one."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from framekiln.contract.output_names import COLUMNS, ERRORS, FRAMES
from framekiln.job import Job
from framekiln.output.object_store import Store
from framekiln.planning.manifest import ProfileFile
from framekiln.reporting.terminal.tables import print_plan
from tests.support.errors import fails
from tests.support.runs.engine_factory import ALL, order, rows, small, table
from tests.support.runs.plan_factory import plan, toy

__all__ = ["small"]

STEPS = {"crc": toy("Checksum"), "near": toy("Neighbours"), "twice": toy("Double"), "small": toy("Small")}


def waves(*steps):
    return plan(STEPS, {"waves": steps}).waves


def names(waves):
    return [[step.name for step in wave.own] for wave in waves]


def waved(request, *steps, out):
    return replace(request, output=str(out), profile=ProfileFile.model_validate({"waves": steps}))


def test_by_default_there_is_one():
    (only,) = plan(STEPS).waves
    assert only.decode.drops == () and not any(step.recalled for step in only.steps)


def test_a_step_that_is_not_named_comes_as_early_as_what_it_reads():
    assert names(waves(["near"], ["crc"])) == [["near", "small"], ["crc", "twice"]]


def test_only_the_steps_that_are_read_are_recalled_from_an_earlier_wave():
    first, second = waves(["crc", "near", "small"], ["twice"])
    assert [step.name for step in second.steps if step.recalled] == ["crc"] and not second.own[0].recalled
    assert set(second.folders) == {first.decode.folder, *(s.folder for s in second.steps)}


def test_pixels_that_a_wave_does_not_read_leave_where_they_were_decoded():
    first, second, third = waves(["crc", "near"], ["small"], ["twice"])
    assert first.decode.columns == second.decode.columns == third.decode.columns == ("frame", "frame_64")
    assert [wave.decode.drops for wave in (first, second, third)] == [("frame_64",), ("frame",), ("frame", "frame_64")]


def test_the_plan_shows_the_processes_of_each_wave():
    console = Console(record=True, width=200, file=io.StringIO())
    print_plan(console, plan(STEPS, {"waves": [["crc", "near", "small"], ["twice"]]}))
    text = console.export_text()
    assert "First pass, wave 1 of 2, processes by | : decode | crc + near + small\n" in text
    assert "First pass, wave 2 of 2, processes by | : decode | twice\n" in text


def test_steps_that_are_left_out_leave_no_empty_wave():
    profile = {"waves": [["near"], ["small"], ["crc"]]}
    assert names(plan(STEPS, profile, stages=("twice", "near")).waves) == [["near"], ["crc", "twice"]]


@pytest.mark.parametrize(
    ("names", "code", "value"),
    [
        ([["twice"], ["crc"]], "FK-WAVE-TOO-EARLY", "'twice' before 'crc'"),
        ([["crc"], ["crc"]], "FK-WAVE-STEP-TWICE", "'crc'"),
        ([["crk"]], "FK-UNKNOWN-STEP", "Did you mean 'crc'"),
    ],
)
def test_mistakes(names, code, value):
    with fails(code, value):
        waves(*names)


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.parametrize("steps", [[["crc"], ["near", "twice"]], [["near"], ["crc"], ["twice"]]], ids=str)
def test_tables_are_those_of_one_wave(small, tmp_path, machines, steps):
    (small / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 40)
    single = order(small, tmp_path / "single", ALL)
    Job(single).run()
    result = Job(several := waved(single, *steps, out=tmp_path / "several")).run()
    assert len(result.work.plan.waves) == len(steps) and result.errors == {"truncated": 1}
    for folder in (FRAMES, "counts", "everything", ERRORS):
        outputs = (single.output, several.output)
        tables = [table(out, folder) if folder == FRAMES else rows(out, folder) for out in outputs]
        assert tables[0].num_rows and tables[0].equals(tables[1]), folder
    assert not Job(several).run().work.left
    assert not Job(replace(several, profile=single.profile)).run().work.left  # waves are not in fingerprints


@pytest.mark.slow
@pytest.mark.heavy
def test_what_failed_in_an_earlier_wave_is_null_in_a_later_one(small, tmp_path, machines):
    steps = {"crc": ("Picky", {"refuse": (3, 17)}), "twice": ("Double", {})}
    Job(waved(order(small, "", steps), ["crc"], ["twice"], out=tmp_path / "out")).run()
    frames = table(tmp_path / "out", FRAMES)
    assert frames["twice"].to_pylist()[:30] == [None if i in (3, 17) else 2 * i for i in range(30)]
    assert [(row["frame_index"], row["step"]) for row in table(tmp_path / "out", ERRORS).to_pylist()] == [
        (3, "crc"),
        (17, "crc"),
    ]


@pytest.mark.heavy
@pytest.mark.slow
def test_a_run_that_stopped_in_a_later_wave_goes_on_there(small, tmp_path, machines):
    out = tmp_path / "out"
    wanted = waved(order(small, out, ALL), ["crc"], ["near", "twice"], out=out)
    Job(wanted).run()
    before = {path: path.stat().st_mtime_ns for path in (out / COLUMNS).glob("crc-*/*.parquet")}
    gone = sorted((out / COLUMNS).glob("twice-*/*.parquet"))[::2]
    for path in gone:
        path.unlink()
    steps = Job(wanted).run().figures.steps
    assert all(path.exists() for path in gone) and "crc" not in steps
    assert before == {path: path.stat().st_mtime_ns for path in (out / COLUMNS).glob("crc-*/*.parquet")}


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.usefixtures("on_ray")
def test_what_disappears_between_two_waves_stops_the_run(small, tmp_path, machines, monkeypatch):
    wanted = waved(order(small, "", ALL), ["crc"], ["near", "twice"], out=tmp_path / "out")
    first_pass = "framekiln.engine.ray.datasets.RayEngine.first_pass"
    from framekiln.engine.ray.datasets import RayEngine as Engine

    real = Engine.first_pass

    def robbed(engine, number, units, ledger):
        if number == 1:
            for path in (tmp_path / "out" / COLUMNS).glob("crc-*/*.parquet"):
                path.unlink()
        real(engine, number, units, ledger)

    monkeypatch.setattr(first_pass, robbed)
    with fails("FK-PART-GONE", "crc"):
        Job(wanted).run()
    monkeypatch.undo()
    Job(wanted).run()
    assert Store(str(tmp_path / "out")).names(FRAMES)
