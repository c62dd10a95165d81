"""A profile's `group:` puts steps into one process; impossible groups are refused before anything starts."""

from __future__ import annotations

from framekiln.planning.processes.resources import Node
from tests.support.errors import fails
from tests.support.runs.plan_factory import plan, toy

STEPS = {"crc": toy("Checksum"), "near": toy("Neighbours"), "twice": toy("Double")}
GPU = [Node(name="box", cpus=8, gpus=1)]


def names(result):
    return [[step.name for step in group] for group in result.groups()]


def placed(**groups):
    return {"steps": {name: {"group": group} for name, group in groups.items()}}


def test_steps_of_a_group_share_a_process_of_their_own():
    assert names(plan(STEPS, placed(crc="card", twice="card"))) == [[], ["near"], ["crc", "twice"]]


def test_two_groups_are_two_processes():
    assert names(plan(STEPS, placed(crc="a", near="b", twice="b"))) == [[], ["crc"], ["near", "twice"]]


def test_pixels_are_dropped_after_their_last_reader_in_the_order_of_groups():
    result = plan(STEPS, placed(crc="card", twice="card"))
    assert [step.name for step in result.waves[0].steps] == ["near", "crc", "twice"]
    assert {step.name: "frame" in step.drops for step in result.waves[0].steps} == {
        "near": False,
        "crc": True,
        "twice": False,
    }


def test_a_step_between_the_members_is_refused():
    steps = {"a": toy("Seeded", column="crc"), "twice": toy("Double"), "last": toy("Reads", column="twice")}
    with fails("FK-GROUP-SPLIT", "'twice'"):
        plan(steps, placed(a="card", last="card"), missing_weights="dummy")


def test_members_have_the_same_device_and_workers():
    profile = {"steps": {"crc": {"group": "card", "workers": 2}, "twice": {"group": "card", "workers": 1}}}
    with fails("FK-GROUP-DIFFERS", "'workers' (crc 2, twice 1)"):
        plan(STEPS, profile)
    profile = {"steps": {"crc": {"group": "card"}, "ten": {"group": "card", "in_flight": 2}}}
    with fails("FK-GROUP-DIFFERS", "'in_flight' (crc 1, ten 2)"):
        plan({"crc": toy("Checksum"), "ten": toy("Meeting")}, profile, missing_weights="dummy")


def test_a_group_needs_the_sum_of_its_shares_of_the_gpu():
    entry = {"group": "card", "device": "cuda", "gpus": 0.4, "cpus": 1}
    steps = {"a": toy("Reads", column="height"), "b": toy("Reads", column="width")}
    profile = {"steps": {"a": entry, "b": entry | {"cpus": 2}}}
    result = plan(steps, profile, nodes=GPU)
    assert names(result) == [[], ["a", "b"]]
    with fails("FK-WORKERS-DO-NOT-FIT", "'a+b'", "2 CPU and 0.8 GPU"):
        plan(steps, profile, nodes=[Node(name="box", cpus=8, gpus=0.5)])
