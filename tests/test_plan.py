"""Whatever can be known to be wrong is refused before anything starts, in one sentence with the fix."""

from __future__ import annotations

import pytest

from pipeline.errors import ConfigError, ResourceError
from pipeline.machines import Node
from pipeline.manifest import PipelineFile, ProfileFile, profile_names, read_pipeline, read_profile
from pipeline.plan import Choices, make_plan

BOX = [Node(name="box", cpus=8)]
SHIPPED = [Node(name="box", cpus=16, gpus=1)]


def plan(steps, profile=None, nodes=BOX, **choices):
    pipeline = PipelineFile.model_validate({"steps": steps})
    return make_plan(pipeline, ProfileFile.model_validate(profile or {}), Choices(**choices), nodes)


def toy(name, **settings):
    return {"use": f"tests.toys:{name}", "with": settings}


def test_columns_are_dropped_at_their_last_reader():
    steps = plan({"crc": toy("Checksum"), "near": toy("Neighbours"), "twice": toy("Double")}).first
    assert [(step.name, step.drops) for step in steps] == [
        ("crc", ()),
        ("near", ("call_rows", "frame", "next_crc")),
        ("twice", ("crc", "twice")),
    ]


def test_producers_come_before_readers_and_the_second_pass_last():
    made = plan({"count": toy("Count"), "twice": toy("Double"), "crc": toy("Checksum")})
    assert [s.name for s in made.first] == ["crc", "twice"] and [s.name for s in made.second] == ["count"]


def test_chosen_stages_bring_what_they_read():
    made = plan({"crc": toy("Checksum"), "near": toy("Neighbours"), "twice": toy("Double")}, stages=("twice",))
    assert [s.name for s in made.steps] == ["crc", "twice"]


def test_decoding_is_asked_for_what_the_chosen_stages_read():
    small = {"crc": toy("Checksum", column="frame_64"), "near": toy("Neighbours")}
    assert plan(small).decode.columns == ("frame", "frame_64")
    assert (plan(small, stages=("crc",)).decode.columns, plan(small, stages=("crc",)).decode.halo) == (("frame_64",), 0)


def test_steps_without_a_model_share_the_loaders_when_their_numbers_agree():
    steps = {"crc": toy("Checksum"), "near": toy("Neighbours")}
    shared = plan(steps, {"decode": {"workers": 4}, "defaults": {"workers": 4}}).groups()
    apart = plan(steps, {"decode": {"workers": 2}, "defaults": {"workers": 4}}).groups()
    assert [[s.name for s in group] for group in shared] == [["crc", "near"]]
    assert [[s.name for s in group] for group in apart] == [[], ["crc", "near"]]


def test_fingerprints_follow_settings_and_producers_but_not_placement():
    base = {s.name: s.fingerprint for s in plan({"crc": toy("Checksum"), "twice": toy("Double")}).first}
    moved = plan({"crc": toy("Checksum"), "twice": toy("Double")}, {"defaults": {"batch": 3, "workers": 2}})
    changed = plan({"crc": toy("Checksum"), "twice": toy("Double")}, settings=("crc.column=frame_64",))
    sampled = plan({"crc": toy("Checksum"), "twice": toy("Double")}, decode={"every_nth": 2})
    assert {s.name: s.fingerprint for s in moved.first} == base
    for other in (changed, sampled):
        assert all(s.fingerprint != base[s.name] for s in other.first)


def test_set_reaches_settings_placement_and_decoding():
    made = plan({"crc": toy("Checksum")}, settings=("crc.column=frame_64", "crc.batch=5", "decode.max_frames=7"))
    (step,) = made.first
    assert (step.stage.config.column, step.placement.batch_rows, made.decode.config.max_frames) == ("frame_64", 5, 7)


def test_no_more_calls_at_a_time_than_cores():
    made = plan({"crc": toy("Checksum")}, {"decode": {"workers": 64}, "defaults": {"workers": 64}})
    assert (made.decode.workers, made.first[0].placement.workers) == (8, 8)


MISTAKES = {
    "two makers": ({"a": toy("Checksum"), "b": toy("Picky")}, {}, {}, "Steps 'a' and 'b' both add a column 'crc'"),
    "nobody makes": ({"a": toy("Double")}, {}, {}, "'a' reads a column 'crc' that no step adds"),
    "no module": ({"a": {"use": "stages.lightning:Lighting"}}, {}, {}, "there is no module 'stages.lightning'"),
    "no class": ({"a": {"use": "tests.toys:Cheksum"}}, {}, {}, "Did you mean 'Checksum'"),
    "no stage": ({"a": {"use": "pathlib:Path"}}, {}, {}, "which is not a Stage class"),
    "unknown setting": (
        {"a": toy("Checksum", colum="frame")},
        {},
        {},
        "'a' has no setting 'colum'. Did you mean 'column'",
    ),
    "wrong type": ({"a": toy("Picky", refuse="x")}, {}, {}, "step 'a': setting 'refuse' is wrong"),
    "unknown chosen": ({"a": toy("Checksum")}, {}, {"stages": ("b",)}, "no step 'b'"),
    "unknown in profile": ({"crc": toy("Checksum")}, {"steps": {"crk": {}}}, {}, "'crk' .* Did you mean 'crc'"),
    "bad set": ({"a": toy("Checksum")}, {}, {"settings": ("a.column",)}, "not of the form step.key=value"),
    "set unknown step": ({"crc": toy("Checksum")}, {}, {"settings": ("crk.x=1",)}, "Did you mean 'crc'"),
    "set decode": ({"crc": toy("Checksum")}, {}, {"settings": ("decode.every_nht=1",)}, "Did you mean 'every_nth'"),
    "device": ({"a": toy("Checksum")}, {"steps": {"a": {"device": "cuda"}}}, {}, "cannot run on 'cuda', only on cpu"),
    "no steps": ({}, {}, {}, "has no steps"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_sentence(case):
    steps, profile, choices, message = MISTAKES[case]
    with pytest.raises(ConfigError, match=message) as caught:
        plan(steps, profile, **choices)
    assert "\n" not in str(caught.value)


def test_a_plan_that_does_not_fit_is_refused():
    with pytest.raises(ResourceError, match="'decode' does not fit"):
        plan({"a": toy("Checksum")}, {"decode": {"cpus": 9}})


@pytest.mark.parametrize("name", profile_names())
def test_every_shipped_profile_fits_the_shipped_pipeline(name):
    made = make_plan(read_pipeline(None), read_profile(name), Choices(), SHIPPED, check_weights=False)
    assert {"lighting", "flow", "pose", "lighting_steadiness"} <= {step.name for step in made.steps}


def test_cpu_only_fits_a_laptop_with_two_cores():
    made = make_plan(
        read_pipeline(None), read_profile("cpu-only"), Choices(), [Node(name="laptop", cpus=2)], check_weights=False
    )
    assert [[s.name for s in group] for group in made.groups()] == [["lighting", "flow"], ["pose"]]
