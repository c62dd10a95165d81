"""`framekiln.plan`: typed facts, the command's text and JSON, and nothing heavy loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pytest

import framekiln
from tests.support.errors import fails
from tests.support.machine.command_line import command
from tests.toys.functions import brightness

STEPS = {"steps": {"crc": {"use": "tests.toys:Checksum"}, "count": {"use": "tests.toys:Count"}}}


def test_a_plan_is_what_the_command_prints(media, tmp_path):
    (tmp_path / "pipeline.yaml").write_text(json.dumps(STEPS))
    words = ["plan", "--pipeline", tmp_path / "pipeline.yaml", "--input", media, "--output", tmp_path / "out"]
    plan = framekiln.plan(media, tmp_path / "out", pipeline=STEPS)
    assert plan.to_dict() == json.loads(command(*words, "--json").stdout)
    assert str(plan).split() == command(*words).stdout.split()
    assert plan.steps == ["crc", "count"] and plan.to_do == {"decode": 7, "crc": 7, "count": 7} and plan.fits
    assert not (tmp_path / "out").exists()


def test_a_plan_for_the_local_engine_says_nothing_of_the_workers_that_ray_would_have(media, tmp_path):
    fitted = framekiln.plan(media, tmp_path / "out", stages=["lighting"], engine="ray")
    assert "To fit " in str(fitted) and "To fit " not in str(
        framekiln.plan(media, tmp_path / "out", stages=["lighting"])
    )


def test_the_shipped_plan_names_what_lacks_weights(no_weights):
    plan = framekiln.plan(stages=["faces", "lighting", brightness])
    assert (
        set(plan.steps) == {"lighting", "brightness", "faces"} and plan.absent.keys() == {"faces"} and plan.to_do == {}
    )
    assert plan.fetch.startswith("framekiln fetch ") and plan.fetch in plan._repr_html_()
    assert "brightness</td>" in plan._repr_html_() and "Lacks weights: faces" in plan._repr_html_()


@framekiln.stage(inputs="frame_224", outputs={"sharpness": pa.float32()})
def sharpness(image):
    return float(image.std())


def test_a_function_takes_the_place_of_a_shipped_column_unless_its_step_is_read_for_others():
    assert set(framekiln.plan(stages=[sharpness, "lighting"]).steps) == {"sharpness", "lighting"}
    with fails("FK-COLUMN-TWICE", "'quality'", "'sharpness'"):
        framekiln.plan(stages=[sharpness, "duplicates"])


@pytest.mark.parametrize(
    ("names", "code"),
    [(["Exposure"], "FK-COLUMN-TWICE"), (["a", "A"], "FK-COLUMN-TWICE"), (["Width"], "FK-COLUMN-RESERVED")],
)
def test_names_of_columns_differ_in_more_than_case(names, code):
    """DuckDB, which reads conditions, takes the first of two such columns."""
    stage = framekiln.stage(inputs="media_id", outputs=dict.fromkeys(names, pa.float32()))(_one)
    with fails(code, repr(names[-1])):
        framekiln.plan(stages=[stage, "lighting"])


def _one(media_id):
    return 1.0


def test_a_plan_that_does_not_fit_says_why():
    plan = framekiln.plan(stages="segment", settings=["segment.device=cuda", "segment.gpus=64"])
    assert not plan.fits and plan.refusal is not None
    assert plan.to_dict()["refusal"] == {"code": plan.refusal.code, "message": str(plan.refusal)}


def test_a_notebooks_function_that_another_process_cannot_import_is_told():
    steps = {"steps": {"mine": {"use": "__main__:never_defined"}}}
    with fails("FK-STAGE-NOT-FOUND", "notebook"):
        framekiln.plan(pipeline=steps)


def test_a_plan_loads_neither_ray_nor_torch():
    code = (
        "import framekiln, sys\n"
        "framekiln.plan('tests', 'out/none', stages=['lighting'])\n"
        "print(*{name.split('.')[0] for name in sys.modules} & {'ray', 'torch', 'transformers', 'mediapipe'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
