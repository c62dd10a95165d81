"""The report of what a run would compute again, and why, on outputs of real runs."""

from __future__ import annotations

import os
import shutil

import pytest

from framekiln.contract.output_names import FACTS
from framekiln.job import Job
from framekiln.planning.plan import make_plan
from framekiln.planning.processes.resources import ROOMY
from framekiln.reporting.terminal.tables import removed_files
from framekiln.runtime.run.change_report import UNKNOWN, Changes
from tests.support.media.collections_factory import clip, photo
from tests.support.runs.engine_factory import order as toys
from tests.support.runs.serial_engine import without_ray

pytestmark = pytest.mark.slow
STEPS = {
    "crc": ("Checksum", {}),
    "twice": ("Double", {}),
    "count": ("Count", {}),
    "all": ("Everything", {}),
    "seeded": ("Seeded", {}),
}

SHARED = STEPS | {"shares": ("Shares", {})}


@pytest.fixture(scope="module", autouse=True)
def _serial():
    with without_ray():
        yield


def order(folder, out, steps=STEPS, **choices):
    return toys(folder, out, steps, **{"missing_weights": "dummy", **choices})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """An input of five files, and the output of a run over it."""
    folder = tmp_path_factory.mktemp("done")
    for i in range(4):
        photo(folder / "in" / f"photo{i}.png", i)
    clip(folder / "in" / "clip.png", 100, 5)
    Job(order(folder / "in", folder / "out")).run()
    return folder


@pytest.fixture(scope="module")
def shared(done, tmp_path_factory):
    """The same after another run, with a step that writes a table a file."""
    folder = tmp_path_factory.mktemp("shared")
    shutil.copytree(done, folder, dirs_exist_ok=True)
    Job(order(folder / "in", folder / "out", SHARED)).run()
    return folder


@pytest.fixture
def mine(done, tmp_path):
    shutil.copytree(done, tmp_path / "mine", dirs_exist_ok=True)  # with the times of the files
    return tmp_path / "mine"


def look(folder, steps=STEPS, **choices):
    """Return the changes, and by step the files done, those to do, and the reason."""
    wanted = order(folder / "in", folder / "out", steps, **choices)
    plan = make_plan(wanted.pipeline, wanted.profile, wanted.options, [ROOMY], check_weights=False)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    changes, outlook, _ = Job(wanted).preview(plan)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before, "looking touches nothing"
    return changes, {one.step: (one.done, one.todo, one.why) for one in outlook}


def test_nothing_is_left(mine):
    changes, found = look(mine)
    assert changes == Changes() and set(found.values()) == {(5, 0, "")} and next(iter(found)) == "decode"


def test_without_an_output_everything_is_new(mine):
    shutil.rmtree(mine / "out")
    assert set(look(mine)[1].values()) == {(0, 5, "5 new files")}


def test_files_that_are_new_changed_or_gone(mine):
    photo(mine / "in" / "more.png", 50)
    (mine / "in" / "photo0.png").unlink()
    os.utime(mine / "in" / "photo1.png", ns=(1, 1))
    changes, found = look(mine)
    assert changes == Changes(new=1, changed=1, removed=("photo0.png",))
    assert found["crc"] == found["count"] == found["decode"] == (2 + 1, 2, "1 new file, 1 changed file")
    assert found["all"] == (0, 5, "1 new file, 1 changed file")


CASES = {
    "a setting": ({"crc": ("Checksum", {"column": "frame_4"})}, "setting 'column' changed frame -> frame_4"),
    "another stage": ({"crc": ("Picky", {})}, "use tests.toys:Checksum -> tests.toys:Picky"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_differs_is_told_and_what_reads_it_follows(mine, case):
    changed, why = CASES[case]
    found = look(mine, STEPS | changed)[1]
    assert found["crc"][:2] == (0, 5) and why in found["crc"][2]
    assert found["twice"] == (0, 5, "input step 'crc' changed") == found["all"] == found["count"]
    assert found["decode"] == found["seeded"] == (5, 0, "")


def test_a_version_and_the_decode_rule(mine, monkeypatch):
    monkeypatch.setattr("tests.toys.Checksum.version", 2)
    assert look(mine)[1]["crc"][2] == "version 1 -> 2"
    found = look(mine, decode={"every_nth": 2})[1]
    assert found["decode"] == (0, 5, "decode rule 'every_nth' changed 1 -> 2")
    assert found["seeded"] == (0, 5, "decode rule changed")


def test_a_new_step_and_one_that_was_not_finished(mine):
    found = look(mine, {**STEPS, "near": ("Neighbours", {})})[1]
    assert found["near"] == (0, 5, "the step is new")
    for part in (mine / "out" / "columns").glob("twice-*/*"):
        part.unlink()
    assert look(mine)[1]["twice"] == (0, 5, "not finished by an earlier run")


OTHERS = {
    "of a step that few read": {"seeded": ("Seeded", {"column": "other"})},
    "of a step that most read": {"crc": ("Checksum", {"column": "frame_4"})},
    "none": {},
    "a new step": {"near": ("Neighbours", {})},
}
FIRST, *REST = OTHERS
TABLES = {"counts": "count", "everything": "all", "shares": "shares"}


def written(out):
    """Return the times of results by path, and the step that each path is of."""
    parts = {path: path.parent.name.rpartition("-")[0] for path in (out / "columns").glob("*/*")}
    tables = {path: TABLES[folder] for folder in TABLES for path in (out / folder).glob("*")}
    return {path: (path.stat().st_mtime_ns, step) for path, step in (parts | tables).items()}


@pytest.mark.heavy
@pytest.mark.parametrize("case", [pytest.param(FIRST, marks=pytest.mark.heavy), *REST])
def test_a_run_computes_the_steps_that_a_plan_lists(shared, tmp_path, case):
    mine, seen = shutil.copytree(shared, tmp_path / "mine"), []
    changed = SHARED | OTHERS[case]
    planned = {name for name, (_, todo, _) in look(mine, changed)[1].items() if todo}
    before = written(mine / "out")
    Job(order(mine / "in", mine / "out", changed), on_plan=seen.append).run()
    computed = {step for path, (time, step) in written(mine / "out").items() if (time, step) != before.get(path)}
    assert planned == computed - {"decode"}  # pixels are decoded again for every step that needs them
    assert planned == {one.step for one in seen[0].outlook if one.todo}
    assert (planned == set()) == (case == "none")


def test_random_weights_and_real_ones(mine):
    assert look(mine, missing_weights="fail")[1]["seeded"][2] == "real weights instead of random ones"


def test_an_output_without_facts_is_of_an_unknown_setting(mine):
    shutil.rmtree(mine / "out" / FACTS)
    found = look(mine, STEPS | {"crc": ("Checksum", {"column": "frame_4"})})[1]
    assert found["crc"] == found["count"] == found["all"] == (0, 5, UNKNOWN)
    assert set(look(mine)[1].values()) == {(5, 0, "")}, "what it was computed by is no matter where it is done"


def test_rows_of_files_that_are_gone_leave_the_tables_and_the_run_says_so(mine):
    (mine / "in" / "photo0.png").unlink()
    result = Job(order(mine / "in", mine / "out")).run()
    assert result.work.files.removed == ("photo0.png",) and result.frames == 8
    second = Job(order(mine / "in", mine / "out")).run()
    assert second.work.files.removed == (), "it is told once"
    assert (
        removed_files(("a",), dropped=True)
        == "1 file of earlier runs is gone (a); its rows were dropped from the tables."
    )
    assert "are gone (a, b, c, ...); a run drops their rows" in removed_files(tuple("abcd"))
