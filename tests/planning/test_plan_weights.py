"""Steps with missing weights stop a run, are left out with their readers, or use random weights and are marked."""

from __future__ import annotations

import pytest

from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from tests.support.errors import fails
from tests.support.runs.plan_factory import BOX, plan, toy
from tests.support.runs.weights_factory import CONTENT, body

LACKING = {
    "crc": toy("Checksum"),
    "seeded": toy("Seeded"),
    "count": toy("Bytes"),
}


@pytest.fixture
def folder(no_weights, tmp_path):
    """A folder with the file of `HERE`."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "here.bin").write_bytes(CONTENT)
    return tmp_path / "weights"


HERE = body("here", stands_in_for="gone")
ENTRIES = {one["name"]: {k: v for k, v in one.items() if k != "name"} for one in (HERE, body("gone", b"another"))}


def seeded(**settings):
    return plan(LACKING, missing_weights="dummy", settings=tuple(f"seeded.{k}={v}" for k, v in settings.items()))


def test_a_run_fails_before_it_starts_and_lists_all_missing_weights(no_weights):
    steps = {"one": toy("Bound"), "two": toy("Bound", model="pose_landmarker_full", column="other")}
    missing = "pose_landmarker_heavy.task (pose_landmarker_heavy, 30.7 MB, licence Apache-2.0) is missing"
    command = "To get them: framekiln fetch pose_landmarker_heavy pose_landmarker_full (without network"
    with fails("FK-WEIGHTS-MISSING", missing, command, "one, two: --missing-weights skip"):
        plan(steps)


def test_a_plan_is_shown_also_where_weights_are_missing(no_weights):
    pipeline = PipelineFile.model_validate({"steps": LACKING})
    result = make_plan(pipeline, ProfileFile(), PlanOptions(), BOX, check_weights=False)
    assert {s.name for s in result.steps} == {"crc", "seeded", "count"}
    assert result.absent.keys() == {"seeded", "count"} and result.skipped == {}


@pytest.mark.parametrize("policy", ["fail", "skip", "dummy"])
def test_a_weights_folder_that_does_not_exist_is_always_a_mistake(no_weights, tmp_path, policy):
    with fails("FK-WEIGHTS-FOLDER"):
        plan(LACKING, missing_weights=policy, weights_dir=tmp_path / "nowhere")


def test_the_policy_changes_nothing_where_no_weights_are_missing(folder):
    given = {"steps": {"seeded": toy("Seeded", model="here")}, "models": ENTRIES, "weights_dir": folder}
    results = [plan(**given, missing_weights=policy) for policy in ("fail", "skip", "dummy")]
    assert len({result.steps[0].fingerprint for result in results}) == 1
    assert all(result.steps[0].weights.keys() == {"here"} and not result.steps[0].dummies for result in results)
    assert all(result.skipped == {} == result.absent for result in results)


# Left out


def test_skipping_also_leaves_out_readers_of_the_columns_with_the_reason(no_weights):
    result = plan(LACKING, missing_weights="skip")
    assert [step.name for step in result.steps] == ["crc"] and result.decode.columns == ("frame",)
    assert result.skipped.keys() == {"seeded", "count"} and "is missing" in result.skipped["seeded"]
    assert result.skipped["count"] == "it reads 'byte' of 'seeded'"
    assert result.fetch == "framekiln fetch pose_landmarker_heavy" and not result.dummies


def test_skipping_also_leaves_out_readers_of_the_tables(no_weights):
    crc, seeded = LACKING["crc"], LACKING["seeded"]
    result = plan({"crc": crc, "seeded": seeded, "b": toy("Bytes"), "r": toy("Reader")}, missing_weights="skip")
    assert result.skipped["r"] == "it reads 'bytes/' of 'b'"


def test_skipping_leaves_the_other_steps_as_they_are(no_weights):
    alone = plan({"crc": toy("Checksum")}).steps
    assert [s.fingerprint for s in plan(LACKING, missing_weights="skip").steps] == [s.fingerprint for s in alone]


def test_a_step_that_only_a_skipped_one_reads_does_not_run(no_weights):
    steps = {"near": toy("Neighbours"), "crc": toy("Checksum"), "both": toy("Greedy")}
    assert [s.name for s in plan(steps, stages=("near", "both"), missing_weights="skip").steps] == ["near"]


def test_skipping_everything_is_a_mistake(no_weights):
    with fails("FK-NO-STEPS-LEFT", "framekiln fetch pose_landmarker_heavy"):
        plan(LACKING, stages=("count",), missing_weights="skip")


# Random weights


def test_random_weights_are_for_stages_that_can_and_others_are_left_out(no_weights):
    result = plan({"one": toy("Bound"), "two": toy("Seeded", column="other")}, missing_weights="dummy")
    assert [step.name for step in result.steps] == ["two"] and result.dummies == ("two",)
    assert result.skipped.keys() == {"one"} and result.skipped["one"].endswith("it does not support random weights")


def test_random_weights_mark_all_that_comes_from_them(no_weights):
    result = {step.name: step for step in seeded().steps}
    assert {name: step.dummies for name, step in result.items()} == {
        "crc": (),
        "seeded": ("seeded",),
        "count": ("seeded",),
    }
    assert result["seeded"].weights == {} and seeded().dummies == ("seeded",) and seeded().skipped == {}


def test_results_of_random_weights_are_never_taken_for_real_ones(no_weights):
    def fingerprints(result):
        return {step.name: step.fingerprint for step in result.steps}

    random, other = fingerprints(seeded()), fingerprints(seeded(model="pose_landmarker_full"))
    pipeline = PipelineFile.model_validate({"steps": LACKING})
    real = fingerprints(make_plan(pipeline, ProfileFile(), PlanOptions(), BOX, check_weights=False))
    assert random["crc"] == real["crc"] == other["crc"]
    assert all(len({random[name], real[name], other[name]}) == 3 for name in ("seeded", "count"))


# Files with the same network


def test_a_file_that_is_here_stands_in_for_the_missing_one_with_the_same_network(folder):
    named, other = (
        plan({"seeded": toy("Seeded", model=model)}, models=ENTRIES, weights_dir=folder) for model in ("gone", "here")
    )
    (step,) = named.steps
    assert step.weights == {"gone": folder / "here.bin"}
    assert step.entries["gone"].sha256 == other.steps[0].entries["here"].sha256
    assert len(named.stand_ins) == 1
    assert "gone.bin" in named.stand_ins[0]
    assert other.stand_ins == () and other.absent == {} == named.absent


def test_nothing_stands_in_for_a_file_that_no_entry_can_replace(folder):
    with fails("FK-WEIGHTS-MISSING"):
        plan({"seeded": toy("Seeded", model="pose_landmarker_heavy")}, models=ENTRIES, weights_dir=folder)
