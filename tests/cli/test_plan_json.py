"""`framekiln plan --json` holds what `framekiln plan` prints, under keys that stay."""

from __future__ import annotations

import json

import yaml

from framekiln.planning.manifest import read_pipeline
from tests.support.machine.command_line import command

KEYS = [
    *("steps", "waves", "reasons", "changes", "absent", "skipped", "random"),
    *("fetch", "fetch_mb", "notes", "work", "fits", "refusal", "costs"),
]
PLACED = [
    *("name", "use", "scope", "fingerprint", "device", "cpus", "gpus", "workers", "vram_gb"),
    *("precision", "compile", "group", "batch", "chunks"),
]


def test_the_shipped_plan():
    plan = json.loads(command("plan", "--json").stdout)
    assert list(plan) == KEYS and plan["fits"] and plan["refusal"] is None and plan["work"] is None
    steps = {step["name"]: step for step in plan["steps"]}
    assert set(steps) == {"decode", *read_pipeline(None).steps}
    assert all(list(step) == [*PLACED, "weights", "reads", "adds", "condition", "drops"] for step in plan["steps"][1:])
    assert steps["flow"]["batch"] is None and steps["lighting"]["batch"] >= 1
    assert steps["shots"]["adds"] == ["shots/", "transitions/"] and "shots/" in steps["tracks"]["reads"]
    first = {name for name, step in steps.items() if step["scope"] in ("row", "clip")}
    assert {name for wave in plan["waves"] for names in wave for name in names} == {"decode", *first}
    printed = command("plan").stdout
    assert all(step["name"] in printed for step in plan["steps"])
    assert all(change in printed for change in plan["changes"])


def test_a_plan_that_does_not_fit_says_so_and_ends_with_3():
    done = command("plan", "--json", "--stages", "segment", "--set", "segment.device=cuda", "--set", "segment.gpus=64")
    plan = json.loads(done.stdout)
    assert done.returncode == 3 and not plan["fits"]
    assert plan["refusal"]["code"] in done.stderr and plan["refusal"]["message"] in done.stderr


def test_the_work_that_is_left(small, pipeline, tmp_path):
    done = command("plan", "--json", "--pipeline", pipeline, "--input", small, "--output", tmp_path / "out")
    work = json.loads(done.stdout)["work"]
    files = len(list(small.iterdir()))
    names = {*yaml.safe_load(pipeline.read_text())["steps"], "decode"}
    assert {step["name"] for step in work["steps"]} == names
    assert all((step["done"], step["todo"]) == (0, files) and step["why"] for step in work["steps"])
    assert work["files"] == {"new": files, "changed": 0, "removed": []}
