"""A profile that was made for more cores runs on fewer, and says which numbers were lowered."""

from __future__ import annotations

import pytest

from framekiln.planning.manifest import ProfileFile, profile_names, read_pipeline, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.core_limits import SHARED
from framekiln.planning.processes.placement import check_capacity
from framekiln.planning.processes.resources import Node
from tests.support.runs.plan_factory import plan, toy

TWO = [Node(name="laptop", cpus=2)]
MODELS = {"crc": toy("Checksum"), "a": toy("Seeded"), "b": toy("Seeded", column="other")}


def _lowered(result, profile):
    for step in result.steps:
        asked = (profile.defaults | profile.steps.get(step.name, {})).get("workers", step.stage.placement.workers)
        yield asked != "auto" and step.placement.workers < asked


def small(profile, steps=MODELS, nodes=TWO):
    return plan(steps, profile, nodes=nodes, missing_weights="dummy")


def workers(result):
    return {step.name: step.placement.workers for step in result.steps}


def test_workers_of_a_model_are_lowered_to_the_cores():
    result = small({"steps": {"a": {"workers": 8, "cpus": 1}}}, steps={"a": toy("Seeded")})
    assert workers(result) == {"a": 1}
    assert "a 1 worker instead of 8" in result.limits


def test_only_as_many_workers_go_as_must():
    profile = {"steps": {"a": {"workers": 9, "cpus": 1}, "b": {"workers": 2, "cpus": 1}}}
    assert workers(small(profile, nodes=[Node(name="box", cpus=8)])) == {"crc": 1, "a": 5, "b": 2}


def test_a_profile_that_fits_is_left_alone():
    result = small({"steps": {"a": {"workers": 3, "cpus": 1}}}, nodes=[Node(name="box", cpus=8)])
    assert workers(result)["a"] == 3
    assert result.limits == ""


def test_models_share_a_process_where_each_needs_a_core():
    result = small({"steps": {"a": {"cpus": 1}, "b": {"cpus": 1}}})
    assert [[step.name for step in group] for group in result.groups()] == [["crc"], ["a", "b"]]
    assert "a, b share a process" in result.limits


def test_a_process_books_no_more_cores_than_there_are():
    result = small({"decode": {"cpus": 9}, "steps": {"a": {"cpus": 6}}}, steps={"a": toy("Seeded")})
    assert result.decode.cpus + result.steps[0].placement.cpus <= 2
    assert "a 1 CPU instead of 6" in result.limits


def test_workers_of_the_second_pass_are_lowered_too():
    steps = {"shares": toy("Watches")}
    profile = {"steps": {"shares": {"device": "cuda", "gpus": 0.1, "workers": 9, "cpus": 1}}}
    result = plan(steps, profile, nodes=[Node(name="box", cpus=4, gpus=1)])
    assert workers(result)["shares"] == 4
    assert "shares 4 workers instead of 9" in result.limits


@pytest.mark.parametrize(("cpus", "gpus"), [(2, 0), (4, 0), (16, 0), (2, 1)])
@pytest.mark.parametrize("profile", profile_names())
def test_every_shipped_profile_fits_any_machine(profile, cpus, gpus):
    nodes = [Node(name="box", cpus=cpus, gpus=gpus)]
    options = PlanOptions(device=None if gpus else "cpu", missing_weights="dummy")
    result = make_plan(read_pipeline(None), read_profile(profile), options, nodes, check_weights=False)
    check_capacity(result.waves, result.second, nodes)
    shares = any(step.placement.group.startswith(SHARED) or step.placement.cpus < 1 for step in result.first)
    assert bool(result.limits) == (shares or any(_lowered(result, read_profile(profile))))


def test_raft_runs_on_two_cores():
    pipeline = read_pipeline(None)
    options = PlanOptions(settings=("flow.backend=raft",), stages=("flow",), missing_weights="dummy")
    result = make_plan(pipeline, read_profile("cpu-only"), options, TWO)
    assert workers(result) == {"flow": 1}
    assert make_plan(pipeline, ProfileFile(), options, TWO).limits == ""
