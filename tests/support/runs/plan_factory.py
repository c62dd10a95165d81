"""What tests of plans share: a machine, steps of toys, and the plan that is made of them."""

from __future__ import annotations

from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan import make_plan
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.processes.placement import check_capacity
from framekiln.planning.processes.resources import Node

BOX = [Node(name="box", cpus=8)]


def plan(steps, profile=None, nodes=BOX, models=(), **choices):
    pipeline = PipelineFile.model_validate({"steps": steps, "models": dict(models)})
    made = make_plan(pipeline, ProfileFile.model_validate(profile or {}), PlanOptions(**choices), nodes)
    check_capacity(made.waves, made.second, nodes)
    return made


def toy(name, **settings):
    return {"use": f"tests.toys:{name}", "with": settings}
