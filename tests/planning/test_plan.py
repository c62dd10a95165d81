"""Plans: the order of steps, their columns, fingerprints and settings."""

from __future__ import annotations

from framekiln.planning.processes.placement import asked_processes, rooms
from framekiln.planning.processes.resources import Node
from tests.support.errors import fails
from tests.support.runs.plan_factory import plan, toy


def test_columns_are_dropped_at_their_last_reader():
    steps = plan({"crc": toy("Checksum"), "near": toy("Neighbours"), "twice": toy("Double")}).first
    assert [(step.name, step.drops) for step in steps] == [
        ("crc", ()),
        ("near", ("call_rows", "frame", "next_crc")),
        ("twice", ("crc", "twice")),
    ]


def test_producers_come_before_readers_and_the_second_pass_last():
    result = plan({"count": toy("Count"), "twice": toy("Double"), "crc": toy("Checksum")})
    assert [s.name for s in result.first] == ["crc", "twice"] and [s.name for s in result.second] == ["count"]


def test_writers_of_tables_come_before_their_readers_and_decide_their_fingerprints():
    steps = {"share": toy("Shares"), "count": toy("Count"), "crc": toy("Checksum")}
    result = plan(steps, stages=("share",))
    assert [step.name for step in result.steps] == ["crc", "count", "share"]
    assert result.second[1].depends == {"crc", "count"}
    other = plan(steps, settings=("crc.column=frame_64",))
    assert all(a.fingerprint != b.fingerprint for a, b in zip(result.second, other.second, strict=True))


def test_a_step_that_waits_for_another_does_not_serve_it_where_it_can_do_without():
    steps = {"maybe": toy("Maybe"), "crc": toy("Checksum")}
    assert plan(steps).first[1].depends == {"crc"}
    waiting = plan({**steps, "crc": {**toy("Checksum"), "where": "maybe < 0"}})
    assert [(step.name, step.depends) for step in waiting.first] == [("maybe", set()), ("crc", {"maybe"})]


def test_chosen_stages_bring_what_they_read():
    result = plan({"crc": toy("Checksum"), "near": toy("Neighbours"), "twice": toy("Double")}, stages=("twice",))
    assert [s.name for s in result.steps] == ["crc", "twice"]


def test_decoding_makes_the_columns_that_the_chosen_stages_read():
    small = {"crc": toy("Checksum", column="frame_64"), "near": toy("Neighbours")}
    assert plan(small).decode.columns == ("frame", "frame_64")
    assert (plan(small, stages=("crc",)).decode.columns, plan(small, stages=("crc",)).decode.halo) == (("frame_64",), 0)


def test_steps_without_a_model_share_the_decoder_when_their_numbers_agree():
    steps = {"crc": toy("Checksum"), "near": toy("Neighbours")}
    shared = plan(steps, {"decode": {"workers": 4}, "defaults": {"workers": 4}}).groups()
    apart = plan(steps, {"decode": {"workers": 2}, "defaults": {"workers": 4}}).groups()
    assert [[s.name for s in group] for group in shared] == [["crc", "near"]]
    assert [[s.name for s in group] for group in apart] == [[], ["crc", "near"]]


def test_no_more_calls_at_a_time_than_cores():
    result = plan({"crc": toy("Checksum")}, {"decode": {"workers": 64}, "defaults": {"workers": 64}})
    assert (result.decode.workers, result.first[0].placement.workers) == (8, 8)


def test_tasks_are_planned_for_the_cores_that_models_leave():
    steps = {"crc": toy("Checksum"), "twice": toy("Double"), "all": toy("Everything")}
    busy = {"twice": {"group": "models", "workers": 2, "cpus": 1.5}}  # a step of a group stays in its process
    profile = {"decode": {"workers": 8}, "defaults": {"workers": 8}, "steps": busy}
    result = plan(steps, profile)
    assert (result.decode.workers, result.first[0].placement.workers) == (5, 5)
    assert [wave.decode.workers for wave in result.waves] == [5]
    assert (result.first[1].placement.workers, result.second[0].placement.workers) == (2, 1)  # all rows are one call
    tight = plan(steps, profile, nodes=[Node(name="small", cpus=4)])
    assert [[step.name for step in group] for group in tight.groups()] == [["crc"], ["twice"]]
    assert (tight.decode.workers, tight.first[0].placement.workers) == (1, 1)


def full(result, cores):
    return {name for name, room in rooms(result.waves, result.second, cores).items() if room.is_full}


def test_steps_without_a_core_for_another_worker_are_listed():
    steps = {"crc": toy("Checksum"), "twice": toy("Double")}
    profile = {"decode": {"workers": 1}, "defaults": {"workers": 1}, "steps": {"twice": {"group": "models"}}}
    by_cores = {}
    for cores in (2, 3, 4):
        result = plan(steps, profile, nodes=[Node(name="box", cpus=cores)])
        by_cores[cores] = full(result, cores)
    assert [asked_processes(wave) for wave in result.waves] == [2]  # where each process has all steps
    assert by_cores == {2: {"decode", "crc", "twice"}, 3: set(), 4: set()}
    many = plan(steps, profile | {"decode": {"workers": 8}})  # seven get a core: a model may take one
    assert many.decode.workers == 7 and full(many, 8) == {"decode"}
    assert rooms(many.waves, many.second, 8)["decode"].processes == 7


# Settings


def test_set_reaches_settings_placement_and_decoding():
    result = plan({"crc": toy("Checksum")}, settings=("crc.column=frame_64", "crc.batch=5", "decode.max_frames=7"))
    (step,) = result.first
    assert (step.stage.config.column, step.placement.batch, result.decode.config.max_frames) == ("frame_64", 5, 7)


def test_a_profile_settles_what_the_pipeline_leaves_open():
    profile = {"steps": {"crc": {"with": {"column": "frame_64"}}}}
    assert plan({"crc": toy("Checksum")}, profile).first[0].stage.inputs == ("frame_64",)
    assert plan({"crc": toy("Checksum", column="frame")}, profile).first[0].stage.inputs == ("frame",)
    chosen = plan({"crc": toy("Checksum")}, profile, settings=("crc.column=frame_128",))
    assert chosen.first[0].stage.inputs == ("frame_128",)
    with fails("FK-UNKNOWN-SETTING", "'column'"):
        plan({"crc": toy("Checksum")}, {"steps": {"crc": {"with": {"colum": "frame"}}}})


def test_the_way_models_run_comes_from_the_profile():
    profile = {"precision": "auto", "pin_memory": True, "steps": {"twice": {"precision": "bf16", "compile": True}}}
    first, second = plan(
        {"crc": toy("Checksum"), "twice": toy("Double")}, profile, settings=("crc.pin_memory=false",)
    ).first
    assert (first.placement.precision, first.placement.pin_memory, first.placement.compile) == ("auto", False, False)
    assert (second.placement.precision, second.placement.pin_memory, second.placement.compile) == ("bf16", True, True)


def test_what_a_profile_sets_for_its_gpu_is_not_for_the_cpu():
    steps = {"faces": {"use": "framekiln_stages.faces:Faces"}}
    on_gpu = {"steps": {"faces": {"device": "cuda", "gpus": 1, "compile": True, "in_flight": 8}}}
    place = plan(steps, on_gpu, device="cpu", missing_weights="dummy").first[0].placement
    assert (place.device, place.gpus, place.compile, place.in_flight) == ("cpu", 0, False, 1)
    on_cpu = {"steps": {"faces": {"device": "cpu", "in_flight": 2}}}
    assert plan(steps, on_cpu, device="cpu", missing_weights="dummy").first[0].placement.in_flight == 2


# Fingerprints


def test_fingerprints_follow_settings_and_producers_but_not_placement():
    base = {s.name: s.fingerprint for s in plan({"crc": toy("Checksum"), "twice": toy("Double")}).first}
    moved = plan({"crc": toy("Checksum"), "twice": toy("Double")}, {"defaults": {"batch": 3, "workers": 2}})
    changed = plan({"crc": toy("Checksum"), "twice": toy("Double")}, settings=("crc.column=frame_64",))
    sampled = plan({"crc": toy("Checksum"), "twice": toy("Double")}, decode={"every_nth": 2})
    assert {s.name: s.fingerprint for s in moved.first} == base
    for other in (changed, sampled):
        assert all(s.fingerprint != base[s.name] for s in other.first)


def test_the_way_models_run_is_not_in_fingerprints():
    base = plan({"crc": toy("Checksum")}).first[0].fingerprint
    fast = {"precision": "bf16", "pin_memory": True, "defaults": {"compile": True, "channels_last": True, "group": "a"}}
    assert plan({"crc": toy("Checksum")}, fast).first[0].fingerprint == base


def test_files_that_a_setting_names_count_by_their_content(tmp_path):
    def fingerprint():
        return plan({"crc": toy("Checksum"), "has": toy("Reads", folder=str(tmp_path))}).first[1].fingerprint

    empty = fingerprint()
    (tmp_path / "mask.png").write_bytes(b"one")
    assert fingerprint() != empty
    with fails("FK-SETTING-NO-FILE"):
        plan({"crc": toy("Checksum"), "has": toy("Reads", folder=str(tmp_path / "gone"))})
