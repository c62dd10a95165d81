"""The shipped pipeline fits the machines of the shipped profiles, in as few processes as they state."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from framekiln.contract.errors import ResourceError
from framekiln.lab.predict.pace import choose_gpu, describe_pace, read_row_seconds, wave_limits
from framekiln.planning.gpu.co_location import IN_FLIGHT_GB
from framekiln.planning.manifest import profile_names, read_pipeline, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import Node
from framekiln.reporting.terminal.tables import print_plan

SHIPPED = [Node(name="box", cpus=16, gpus=1)]


@pytest.mark.parametrize("name", profile_names())
def test_every_shipped_profile_fits_the_shipped_pipeline(name):
    result = make_plan(read_pipeline(None), read_profile(name), PlanOptions(), SHIPPED, check_weights=False)
    assert {"lighting", "flow", "pose", "lighting_steadiness"} <= {step.name for step in result.steps}
    (tasks,) = [group for group in result.groups() if group and not group[0].keeps_model]
    assert [step.name for step in tasks] == [
        "metadata",
        "quality",
        "fingerprint",
        "lighting",
        "flow",
        "features",
        "voice",
    ], "pixels are copied between tasks"
    held = sum(step.placement.vram_gb for step in result.first if step.placement.device == "cuda")
    assert not held or held + 0.6 <= read_profile(name).gpu_vram_gb, "a larger context would read all media twice"
    gpu, factor = choose_gpu("", None, read_profile(name).gpu_vram_gb or 0.0)
    (limits,) = [wave_limits(wave, read_row_seconds(), factor, 16) for wave in result.waves]
    slowest = max(limits, key=lambda step: limits[step])
    assert slowest.split("(")[-1].rstrip(")") == "segment" and limits["decode"] < limits[slowest] / 4
    if name == "high-throughput":
        assert (gpu, choose_gpu("NVIDIA L4", 25.8, 7.0)[0]) == ("rtx-5080", "l4")
        assert limits["pose"] == pytest.approx(0.3 / 8) and limits[slowest] == pytest.approx(5 * 0.03973)
        (small,) = [wave_limits(wave, read_row_seconds(), factor, 2) for wave in result.waves]
        assert (small["pose"], small["the CPU (pose)"]) == pytest.approx((0.3 / 2, 0.3524 / 2))  # not eight at once


@pytest.mark.parametrize(("device", "named"), [("NVIDIA GeForce GTX 1080", "rtx-5080"), ("NVIDIA L4", ""), ("", "")])
def test_a_gpu_that_is_not_listed_is_named_beside_the_one_in_its_place(device, named):
    plan = make_plan(read_pipeline(None), read_profile("high-throughput"), PlanOptions(), SHIPPED, check_weights=False)
    told = describe_pace(plan, SHIPPED, device, 8.6, 14.0)
    assert (f"{device} is not in" in told and f"{named}, which" in told) == ("gpus.yaml" in told) == bool(named)
    assert ("l4" in told) == (device == "NVIDIA L4")


@pytest.mark.parametrize("name", sorted(set(profile_names()) - {"cpu-only"}))
def test_each_gpu_of_a_cluster_has_a_process_of_its_own(name):
    """Ray puts two processes on one GPU if their shares fit it, so each books a whole one."""

    def placed(nodes, stages=(), *settings):
        options = PlanOptions(stages=stages, settings=settings, missing_weights="dummy")
        return make_plan(read_pipeline(None), read_profile(name), options, nodes, check_weights=False)

    def rate(plan, nodes):
        (told,) = re.findall(
            r"the GPU \(segment\)(?: sets the pace,)? (\d+)", describe_pace(plan, nodes, "", None, 7.0)
        )
        return int(told)

    four = [Node(name=f"n{number}", cpus=16, gpus=1) for number in range(4)]
    for nodes, stages in (
        (four, ()),
        (four, ("segment",)),
        ([Node(name="box", cpus=64, gpus=4)], ("categorize", "faces")),
    ):
        (wave,) = placed(nodes, stages).waves
        shares = [step.placement.gpus for step in wave.own if step.placement.device == "cuda"]
        assert (wave.gpus, sum(shares)) == (4, pytest.approx(1.0, abs=0.02))
        assert {step.placement.workers for step in wave.own if step.placement.device == "cuda"} == {4}
    one, spread = placed(four[:1]), placed(four)
    kept = placed(four, (), *(f"{step.name}.workers=1" for step in one.first if step.placement.device == "cuda"))
    assert rate(spread, four) == pytest.approx(4 * rate(one, four[:1]), abs=2) and kept.waves[0].gpus == 1
    assert rate(kept, four) == rate(one, four[:1])  # three GPUs that no process uses make nothing faster


def test_a_limit_that_packets_in_work_fill_is_refused_and_one_packet_at_a_time_fits_it():
    def capped(gigabytes, *settings):
        choices = PlanOptions(vram_cap=gigabytes, settings=settings, stages=("categorize",))
        return make_plan(read_pipeline(None), read_profile("memory-constrained"), choices, SHIPPED, check_weights=False)

    with pytest.raises(ResourceError) as error:
        capped(1.7)
    assert error.value.code == "FK-GPU-TOO-SMALL" and "cpu-only" in str(error.value)
    assert capped(1.7, "categorize.in_flight=1").waves and capped(2.7).waves


def test_cpu_only_fits_a_laptop_with_two_cores():
    result = make_plan(
        read_pipeline(None), read_profile("cpu-only"), PlanOptions(), [Node(name="laptop", cpus=2)], check_weights=False
    )
    assert [[s.name for s in group] for group in result.groups()] == [
        ["metadata", "quality", "fingerprint", "lighting", "flow", "features", "voice"],
        ["pose", "mouth", "categorize", "faces", "segment", "instances", "inpaint"],
    ]


def test_an_eight_gb_gpu_has_one_process_for_all_its_models():
    result = make_plan(
        read_pipeline(None), read_profile("memory-constrained"), PlanOptions(), SHIPPED, check_weights=False
    )
    (models,) = [group for group in result.groups() if group and group[0].placement.device == "cuda"]
    assert [step.name for step in models] == ["categorize", "faces", "segment", "instances", "inpaint"]


@pytest.mark.parametrize("name", ["categorize", "faces"])
def test_a_step_that_has_the_gpu_alone_gets_what_plan_says_that_it_needs(name):
    def placed(**choices):
        pipeline, profile = read_pipeline(None), read_profile("memory-constrained")
        options = PlanOptions(stages=(name,), **choices)
        found = make_plan(pipeline, profile, options, SHIPPED, check_weights=False)
        return next(step for step in found.first if step.name == name)

    step, stated = placed(), read_profile("memory-constrained").steps[name]["vram_gb"]
    memory = step.stage.gpu_memory(step.placement)
    needs = memory.weights_gb + memory.call_gb + IN_FLIGHT_GB * step.placement.in_flight
    assert stated < step.placement.vram_gb == pytest.approx(needs, abs=2e-3)
    assert placed(settings=(f"{name}.vram_gb=1",)).placement.vram_gb == 1.0


@pytest.mark.parametrize("name", sorted(set(profile_names()) - {"cpu-only"}))
def test_the_second_pass_has_the_gpu_to_itself(name, capsys):
    profile = read_profile(name)
    result = make_plan(read_pipeline(None), profile, PlanOptions(), SHIPPED, check_weights=False)
    step = next(step for step in result.second if step.name == "identities")
    assert step.keeps_model_later
    assert (step.placement.device, step.placement.gpus, step.placement.vram_gb) == ("cuda", 1.0, profile.gpu_vram_gb)
    print_plan(Console(width=200), result)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["identities", "dataset", "cuda", "1", "1"] in [words[:5] for words in lines]
