"""The shipped pipeline fits the machines that the shipped profiles are for, in as few processes as they say."""

from __future__ import annotations

import pytest
from rich.console import Console

from pipeline.machines import Node
from pipeline.manifest import profile_names, read_pipeline, read_profile
from pipeline.plan import Choices, make_plan
from pipeline.telemetry.printing import print_plan

SHIPPED = [Node(name="box", cpus=16, gpus=1)]


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
