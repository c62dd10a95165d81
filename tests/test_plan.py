"""Whatever can be known to be wrong is refused before anything starts, in one sentence with the fix."""

from __future__ import annotations

import pytest
from rich.console import Console

from pipeline.errors import ConfigError, ResourceError, WeightsError
from pipeline.machines import Node
from pipeline.manifest import PipelineFile, ProfileFile, profile_names, read_pipeline, read_profile
from pipeline.plan import Choices, make_plan
from pipeline.telemetry.printing import print_plan
from tests.material import weights

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


def test_writers_of_tables_come_before_their_readers_and_decide_their_fingerprints():
    steps = {"share": toy("Shares"), "count": toy("Count"), "crc": toy("Checksum")}
    made = plan(steps, stages=("share",))
    assert [step.name for step in made.steps] == ["crc", "count", "share"]
    assert made.second[1].depends == {"crc", "count"}
    other = plan(steps, settings=("crc.column=frame_64",))
    assert all(a.fingerprint != b.fingerprint for a, b in zip(made.second, other.second, strict=True))


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
    "two writers": (
        {"crc": toy("Checksum"), "a": toy("Count"), "b": toy("Count")},
        {},
        {},
        "Steps 'a' and 'b' both write a table 'counts'",
    ),
    "nobody writes": (
        {"crc": toy("Checksum"), "a": toy("Count"), "b": toy("Shares", table="count")},
        {},
        {},
        "'b' reads a table 'count' that no step writes. Did you mean 'counts'",
    ),
    "a table of all, file by file": (
        {"crc": toy("Checksum"), "a": toy("Everything"), "b": toy("Shares", table="everything")},
        {},
        {},
        "'b' works file by file, which the table 'everything' of 'a' does not",
    ),
    "reads its own table": ({"a": toy("Shares", table="shares")}, {}, {}, "in a circle"),
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
    (tasks,) = [group for group in made.groups() if group and not group[0].keeps_model]
    assert [step.name for step in tasks] == ["lighting", "flow", "features", "voice"], "pixels are copied between tasks"


def test_cpu_only_fits_a_laptop_with_two_cores():
    made = make_plan(
        read_pipeline(None), read_profile("cpu-only"), Choices(), [Node(name="laptop", cpus=2)], check_weights=False
    )
    assert [[s.name for s in group] for group in made.groups()] == [
        ["lighting", "flow", "features", "voice"],
        ["pose", "mouth", "categorize", "faces", "segment", "instances", "inpaint"],
    ]


def test_an_eight_gb_card_has_one_process_for_all_its_models():
    made = make_plan(read_pipeline(None), read_profile("memory-constrained"), Choices(), SHIPPED, check_weights=False)
    (card,) = [group for group in made.groups() if group and group[0].placement.device == "cuda"]
    assert [step.name for step in card] == ["categorize", "faces", "segment", "instances", "inpaint"]
    assert sum(step.placement.vram_gb for step in card) <= read_profile("memory-constrained").vram_gb


@pytest.mark.parametrize("name", sorted(set(profile_names()) - {"cpu-only"}))
def test_the_second_pass_has_the_card_to_itself(name, capsys):
    profile = read_profile(name)
    made = make_plan(read_pipeline(None), profile, Choices(), SHIPPED, check_weights=False)
    step = next(step for step in made.second if step.name == "identities")
    assert step.keeps_model_later
    assert (step.placement.device, step.placement.gpus, step.placement.vram_gb) == ("cuda", 1.0, profile.vram_gb)
    print_plan(Console(width=200), made)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["identities", "dataset", "cuda", "1", "1"] in [words[:5] for words in lines]


# Weights that are not at hand

LACKING = {
    "crc": toy("Checksum"),
    "seeded": toy("Seeded"),
    "count": toy("Bytes"),
}


@pytest.fixture
def no_weights(tmp_path, monkeypatch):
    """A machine without any weights."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FRAMEMILL_WEIGHTS", raising=False)


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


def test_results_of_random_weights_are_never_taken_for_real_ones(no_weights, monkeypatch):
    def fingerprints(made):
        return {step.name: step.fingerprint for step in made.steps}

    random, other = fingerprints(seeded()), fingerprints(seeded(model="pose_landmarker_full"))
    pipeline = PipelineFile.model_validate({"steps": LACKING})
    real = fingerprints(make_plan(pipeline, ProfileFile(), Choices(), BOX, check_weights=False))
    assert random["crc"] == real["crc"] == other["crc"]
    assert all(len({random[name], real[name], other[name]}) == 3 for name in ("seeded", "count"))


def test_with_weights_at_hand_the_policy_changes_nothing(monkeypatch):
    model = "pose_landmarker_lite_zipped"
    folder = weights("pose_landmarker_lite.task").parent
    steps = {"seeded": toy("Seeded", model=model)}
    made = [plan(steps, missing_weights=policy, weights_dir=folder) for policy in ("fail", "skip", "dummy")]
    assert len({one.steps[0].fingerprint for one in made}) == 1
    assert all(one.steps[0].weights.keys() == {model} and not one.steps[0].dummies for one in made)
    assert all(one.skipped == {} == one.absent for one in made)


def test_a_plan_is_shown_also_where_weights_are_missing(no_weights):
    pipeline = PipelineFile.model_validate({"steps": LACKING})
    made = make_plan(pipeline, ProfileFile(), Choices(), BOX, check_weights=False)
    assert {s.name for s in made.steps} == {"crc", "seeded", "count"}
    assert made.absent.keys() == {"seeded", "count"} and made.skipped == {}


@pytest.mark.parametrize("policy", ["fail", "skip", "dummy"])
def test_a_weights_folder_that_is_not_there_is_always_a_mistake(no_weights, tmp_path, policy):
    with pytest.raises(WeightsError, match="check --weights-dir"):
        plan(LACKING, missing_weights=policy, weights_dir=tmp_path / "nowhere")


def test_a_profile_settles_what_the_pipeline_leaves_open():
    profile = {"steps": {"crc": {"with": {"column": "frame_64"}}}}
    assert plan({"crc": toy("Checksum")}, profile).first[0].stage.inputs == ("frame_64",)
    assert plan({"crc": toy("Checksum", column="frame")}, profile).first[0].stage.inputs == ("frame",)
    chosen = plan({"crc": toy("Checksum")}, profile, settings=("crc.column=frame_128",))
    assert chosen.first[0].stage.inputs == ("frame_128",)
    with pytest.raises(ConfigError, match="no setting 'colum'. Did you mean 'column'"):
        plan({"crc": toy("Checksum")}, {"steps": {"crc": {"with": {"colum": "frame"}}}})


def test_how_models_run_comes_from_the_profile():
    profile = {"precision": "mixed", "pin_memory": True, "steps": {"twice": {"precision": "bf16", "compile": True}}}
    first, second = plan(
        {"crc": toy("Checksum"), "twice": toy("Double")}, profile, settings=("crc.pin_memory=false",)
    ).first
    assert (first.placement.precision, first.placement.pin_memory, first.placement.compile) == ("mixed", False, False)
    assert (second.placement.precision, second.placement.pin_memory, second.placement.compile) == ("bf16", True, True)


def test_how_models_run_does_not_name_their_results():
    base = plan({"crc": toy("Checksum")}).first[0].fingerprint
    fast = {"precision": "bf16", "pin_memory": True, "defaults": {"compile": True, "channels_last": True, "group": "a"}}
    assert plan({"crc": toy("Checksum")}, fast).first[0].fingerprint == base


def test_files_that_a_setting_names_count_by_what_they_hold(tmp_path):
    def found():
        return plan({"crc": toy("Checksum"), "has": toy("Reads", folder=str(tmp_path))}).first[1].fingerprint

    empty = found()
    (tmp_path / "mask.png").write_bytes(b"one")
    assert found() != empty
    with pytest.raises(ConfigError, match="no such file or folder"):
        plan({"crc": toy("Checksum"), "has": toy("Reads", folder=str(tmp_path / "gone"))})
