"""Steps whose weights are missing stop a run, are left out with what needs them, or take random ones and say so."""

from __future__ import annotations

import pytest

from pipeline.errors import WeightsError
from pipeline.manifest import PipelineFile, ProfileFile
from pipeline.plan import Choices, make_plan
from tests.material import weights
from tests.plan_factory import BOX, plan, toy

LACKING = {
    "crc": toy("Checksum"),
    "seeded": toy("Seeded"),
    "count": toy("Bytes"),
}


def seeded(**settings):
    return plan(LACKING, missing_weights="dummy", settings=tuple(f"seeded.{k}={v}" for k, v in settings.items()))


def test_a_run_fails_before_it_starts_and_tells_all_that_is_missing(no_weights):
    steps = {"one": toy("Bound"), "two": toy("Bound", model="pose_landmarker_full", column="other")}
    with pytest.raises(WeightsError) as caught:
        plan(steps)
    said = str(caught.value)
    assert "pose_landmarker_heavy.task (pose_landmarker_heavy, 30.7 MB, licence Apache-2.0) is missing" in said
    assert "To get them: framemill fetch pose_landmarker_heavy pose_landmarker_full\n" in said
    assert "To go on without one, two: --missing-weights skip" in said


def test_a_plan_is_shown_also_where_weights_are_missing(no_weights):
    pipeline = PipelineFile.model_validate({"steps": LACKING})
    made = make_plan(pipeline, ProfileFile(), Choices(), BOX, check_weights=False)
    assert {s.name for s in made.steps} == {"crc", "seeded", "count"}
    assert made.absent.keys() == {"seeded", "count"} and made.skipped == {}


@pytest.mark.parametrize("policy", ["fail", "skip", "dummy"])
def test_a_weights_folder_that_is_not_there_is_always_a_mistake(no_weights, tmp_path, policy):
    with pytest.raises(WeightsError, match="check --weights-dir"):
        plan(LACKING, missing_weights=policy, weights_dir=tmp_path / "nowhere")


def test_with_weights_at_hand_the_policy_changes_nothing():
    model = "pose_landmarker_lite_zipped"
    folder = weights("pose_landmarker_lite.task").parent
    steps = {"seeded": toy("Seeded", model=model)}
    made = [plan(steps, missing_weights=policy, weights_dir=folder) for policy in ("fail", "skip", "dummy")]
    assert len({one.steps[0].fingerprint for one in made}) == 1
    assert all(one.steps[0].weights.keys() == {model} and not one.steps[0].dummies for one in made)
    assert all(one.skipped == {} == one.absent for one in made)


# Left out


def test_skipping_takes_along_what_needs_the_columns_and_says_why(no_weights):
    made = plan(LACKING, missing_weights="skip")
    assert [step.name for step in made.steps] == ["crc"] and made.decode.columns == ("frame",)
    assert made.skipped.keys() == {"seeded", "count"} and "is missing" in made.skipped["seeded"]
    assert made.skipped["count"] == "it reads 'byte' of 'seeded'"
    assert made.fetch == "framemill fetch pose_landmarker_heavy" and not made.dummies


def test_skipping_takes_along_what_needs_the_tables(no_weights):
    crc, seeded = LACKING["crc"], LACKING["seeded"]
    made = plan({"crc": crc, "seeded": seeded, "b": toy("Bytes"), "r": toy("Reader")}, missing_weights="skip")
    assert made.skipped["r"] == "it reads 'bytes/' of 'b'"


def test_skipping_leaves_the_other_steps_as_they_are(no_weights):
    alone = plan({"crc": toy("Checksum")}).steps
    assert [s.fingerprint for s in plan(LACKING, missing_weights="skip").steps] == [s.fingerprint for s in alone]


def test_what_only_a_skipped_step_reads_is_not_made(no_weights):
    steps = {"near": toy("Neighbours"), "crc": toy("Checksum"), "both": toy("Greedy")}
    assert [s.name for s in plan(steps, stages=("near", "both"), missing_weights="skip").steps] == ["near"]


def test_skipping_everything_is_a_mistake(no_weights):
    with pytest.raises(WeightsError, match="nothing is left to run .*framemill fetch pose_landmarker_heavy") as caught:
        plan(LACKING, stages=("count",), missing_weights="skip")
    assert "\n" not in str(caught.value)


# Random weights


def test_random_weights_are_for_stages_that_can_and_others_are_left_out(no_weights):
    made = plan({"one": toy("Bound"), "two": toy("Seeded", column="other")}, missing_weights="dummy")
    assert [step.name for step in made.steps] == ["two"] and made.dummies == ("two",)
    assert made.skipped.keys() == {"one"} and made.skipped["one"].endswith("it has no random weights to run on")


def test_random_weights_mark_all_that_comes_from_them(no_weights):
    made = {step.name: step for step in seeded().steps}
    assert {name: step.dummies for name, step in made.items()} == {
        "crc": (),
        "seeded": ("seeded",),
        "count": ("seeded",),
    }
    assert made["seeded"].weights == {} and seeded().dummies == ("seeded",) and seeded().skipped == {}


def test_results_of_random_weights_are_never_taken_for_real_ones(no_weights):
    def fingerprints(made):
        return {step.name: step.fingerprint for step in made.steps}

    random, other = fingerprints(seeded()), fingerprints(seeded(model="pose_landmarker_full"))
    pipeline = PipelineFile.model_validate({"steps": LACKING})
    real = fingerprints(make_plan(pipeline, ProfileFile(), Choices(), BOX, check_weights=False))
    assert random["crc"] == real["crc"] == other["crc"]
    assert all(len({random[name], real[name], other[name]}) == 3 for name in ("seeded", "count"))
