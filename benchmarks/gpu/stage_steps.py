"""Steps of the shipped pipeline as the benchmark runs them: by the profile for this GPU, with random weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.gpu.options import GpuOptions
from benchmarks.made_rows import Size
from framekiln.planning.manifest import read_pipeline, read_profile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.resources import ROOMY
from framekiln.planning.step import Step
from framekiln.runtime.recovery.child_tasks import not_set_up

STAGES = ("categorize", "faces", "segment", "instances", "inpaint")
"""First-pass steps with a model that runs on a GPU."""

WORK: Mapping[str, Sequence[str]] = {  # so that random weights have the work of trained ones
    "segment": (
        "segment.pred_iou_thresh=0",
        "segment.stability_score_thresh=0",
        "segment.box_nms_thresh=1.0",
        "segment.max_masks=100",
    ),
    "faces": ("faces.model=arcface-r50", "faces.runtime=torch", "faces.keep_crops=true"),
}
SMALL: Mapping[str, Sequence[str]] = {  # with which two cores run each stage within seconds
    "categorize": ("categorize.model=clip-vit-b32", "categorize.categories=[cat, dog]"),
    "instances": ("instances.model=clip-vit-b32", "instances.categories=[cat, dog]"),
    "faces": ("faces.model=mobilefacenet",),
    "segment": ("segment.model=sam2.1-hiera-tiny", "segment.points_per_side=2", "segment.max_masks=4"),
    "inpaint": ("inpaint.implementation=eager",),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to run a stage."""

    stage: str
    sizes: Sequence[Size]  # of the photos of a packet
    masks: int = 1
    settings: Sequence[str] = ()
    placement: Mapping[str, Any] | None = None  # fields that replace the profile's


def step_of(case: Case, options: GpuOptions) -> Step:
    """Return the step of the shipped pipeline, not set up, as the profile for this GPU places it."""
    settings = (*WORK.get(case.stage, ()), *(SMALL.get(case.stage, ()) if options.small else ()), *case.settings)
    choices = PlanOptions(
        stages=(case.stage,), settings=settings, missing_weights="dummy", accept_license=True, device=options.device
    )
    plan = make_plan(read_pipeline(None), read_profile(options.profile), choices, [ROOMY], calibrated=False)
    step = next(step for step in plan.first if step.name == case.stage)
    changed: dict[str, Any] = {} if options.compile else {"compile": False}
    return not_set_up(replace(step, placement=replace(step.placement, **changed | dict(case.placement or {}))))
