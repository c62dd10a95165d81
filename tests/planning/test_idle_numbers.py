"""A number of a profile that changes nothing is refused, with its reason."""

from __future__ import annotations

import pytest

from framekiln.planning.manifest import PipelineFile, ProfileFile, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from tests.support.errors import fails
from tests.support.runs.plan_factory import BOX, toy

SHIPPED = {
    "flow": {"use": "framekiln_stages.flow:Flow"},
    "lighting": {"use": "framekiln_stages.lighting:Lighting"},
    "pose": {"use": "framekiln_stages.pose:Pose"},
    "faces": {"use": "framekiln_stages.faces:Faces"},
    "identities": {"use": "framekiln_stages.identities:Identities"},
}


def made(profile, *settings, device=None, **others):
    pipeline = PipelineFile.model_validate({"steps": SHIPPED})
    options = PlanOptions(settings=settings, device=device, missing_weights="dummy")
    return make_plan(pipeline, ProfileFile.model_validate(profile), options, [ROOMY], check_weights=False, **others)


IDLE = {
    "a batch of a step that gets clips": ("flow", {"batch": 16}),
    "a batch of a step that gets all rows": ("identities", {"batch": 16}),
    "workers of a step that gets all rows": ("identities", {"workers": 4}),
    "memory of a GPU on the CPU": ("faces", {"vram_gb": 2.0}),
    "a share of a GPU on the CPU": ("pose", {"gpus": 0.5}),
    "chunks of a step that has none": ("pose", {"chunks": {"faces": 8}}),
    "chunks of another kind": ("faces", {"device": "cuda", "gpus": 1, "chunks": {"face": 8}}),
    "a timeout of the second pass": ("identities", {"timeout_s": 60}),
    "packets in work without a model": ("lighting", {"in_flight": 2}),
    "packets in work in the second pass": ("identities", {"in_flight": 2}),
    "a wait for a full batch on the CPU": ("faces", {"linger_ms": 50}),
}


@pytest.mark.parametrize("case", IDLE)
def test_a_number_without_effect_is_refused(case):
    step, entry = IDLE[case]
    with fails("FK-NO-EFFECT", step):
        made({"steps": {step: entry}})


@pytest.mark.parametrize(
    "typed", ["flow.batch=16", "identities.workers=4", "faces.vram_gb=2", "pose.chunks={faces: 8}"]
)
def test_so_it_is_on_the_command_line(typed):
    with fails("FK-NO-EFFECT"):
        made({}, typed)


def test_chunks_that_are_no_mapping_are_refused_as_such():
    with fails("FK-INVALID-SETTING", "'chunks'"):
        made({}, "pose.chunks=3")


def test_chunks_of_another_kind_suggest_the_right_one():
    with fails("FK-NO-EFFECT", "Did you mean 'faces'"):
        made({"steps": {"faces": {"chunks": {"face": 8}}}})


def test_memory_of_a_gpu_that_no_step_uses_is_refused():
    with fails("FK-NO-EFFECT"):
        made({"vram_gb": 8})


@pytest.mark.parametrize(
    "profile",
    [
        {"steps": {"lighting": {"batch": 3}, "flow": {"workers": 3}, "identities": {"workers": 1}}},
        {"steps": {"faces": {"device": "cuda", "gpus": 0.5, "vram_gb": 2, "chunks": {"faces": 8}}}, "vram_gb": 8},
        {"defaults": {"batch": 8, "gpus": 0, "workers": 2, "timeout_s": 9}},
        {"steps": {"flow": {"batch": None}, "faces": {"gpus": 0}, "pose": {"in_flight": 2}}},
        {"steps": {"faces": {"device": "cuda", "gpus": 0.5, "in_flight": 4, "linger_ms": 50}}},
        {"steps": {name: {"group": "one", "in_flight": 2} for name in ("lighting", "pose")}},
    ],
)
def test_numbers_with_an_effect_are_kept(profile):
    assert made(profile).steps


def test_an_option_that_moves_all_steps_makes_no_number_of_the_profile_wrong():
    profile = {"steps": {"faces": {"device": "cuda", "gpus": 0.5, "vram_gb": 2}}, "vram_gb": 8}
    assert made(profile, device="cpu").steps
    assert made({"steps": {"faces": {"vram_gb": 2}}}, device="cuda").steps


def test_chunks_of_a_step_that_declares_no_kinds_are_not_checked():
    pipeline = PipelineFile.model_validate({"steps": {"crc": toy("Checksum")}})
    profile = ProfileFile.model_validate({"steps": {"crc": {"chunks": {"anything": 3}}}})
    assert make_plan(pipeline, profile, PlanOptions(), BOX).steps


@pytest.mark.parametrize(
    ("name", "clip", "arcface", "lama"),
    [
        ("gpu-24gb", 192, 64, 8),
        ("high-throughput", 128, 64, 4),
        ("gpu-12gb", 96, 64, 4),
        ("memory-constrained", 64, 32, 2),
    ],
)
def test_batches_follow_the_guide_for_each_gpu(name, clip, arcface, lama):
    steps = read_profile(name).steps
    assert [steps[step]["batch"] for step in ("categorize", "inpaint", "lighting")] == [clip, lama, 64]
    assert steps["faces"]["chunks"] == {"faces": arcface}
    assert steps["faces"]["with"] == {"model": "auraface"}
    assert steps["flow"] == {"workers": "auto"}
    models = [steps[step] for step in ("categorize", "faces", "segment", "instances", "inpaint")]
    assert {step["group"] for step in models} == {"gpu"} and min(step["in_flight"] for step in models) > 1


def test_a_laptop_paints_by_lama_cleaner_itself():
    assert read_profile("cpu-only").steps["inpaint"]["with"] == {"implementation": "lama-cleaner", "shapes": "many"}
