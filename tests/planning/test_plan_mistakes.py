"""Mistakes in a plan are refused before anything starts, in one sentence with the fix."""

from __future__ import annotations

import pytest

from pipeline.contract.errors import ConfigError, ResourceError
from pipeline.planning.processes.resources import Node
from tests.support.runs.plan_factory import plan, toy

MISTAKES = {
    "two producers": ({"a": toy("Checksum"), "b": toy("Picky")}, {}, {}, "FM-COLUMN-TWICE", "'crc'"),
    "no producer": ({"a": toy("Double")}, {}, {}, "FM-UNKNOWN-COLUMN", "'crc'"),
    "no module": ({"a": {"use": "stages.lightning:Lighting"}}, {}, {}, "FM-STAGE-NO-MODULE", "'stages.lightning'"),
    "no class": ({"a": {"use": "tests.toys:Cheksum"}}, {}, {}, "FM-STAGE-NOT-FOUND", "Did you mean 'Checksum'"),
    "no stage": ({"a": {"use": "pathlib:Path"}}, {}, {}, "FM-NOT-A-STAGE", "'pathlib:Path'"),
    "unknown setting": (
        {"a": toy("Checksum", colum="frame")},
        {},
        {},
        "FM-UNKNOWN-SETTING",
        "Did you mean 'column'",
    ),
    "wrong type": ({"a": toy("Picky", refuse="x")}, {}, {}, "FM-INVALID-SETTING", "'refuse'"),
    "no workers": ({"a": toy("Checksum")}, {}, {"settings": ("a.workers=0",)}, "FM-INVALID-SETTING", "'workers'"),
    "unknown chosen": ({"a": toy("Checksum")}, {}, {"stages": ("b",)}, "FM-UNKNOWN-STEP", "'b'"),
    "unknown in profile": (
        {"crc": toy("Checksum")},
        {"steps": {"crk": {}}},
        {},
        "FM-UNKNOWN-STEP",
        "Did you mean 'crc'",
    ),
    "bad set": ({"a": toy("Checksum")}, {}, {"settings": ("a.column",)}, "FM-SET-FORM", "'a.column'"),
    "set unknown step": (
        {"crc": toy("Checksum")},
        {},
        {"settings": ("crk.x=1",)},
        "FM-UNKNOWN-STEP",
        "Did you mean 'crc'",
    ),
    "set decode": (
        {"crc": toy("Checksum")},
        {},
        {"settings": ("decode.every_nht=1",)},
        "FM-UNKNOWN-SETTING",
        "Did you mean 'every_nth'",
    ),
    "device": ({"a": toy("Checksum")}, {"steps": {"a": {"device": "cuda"}}}, {}, "FM-DEVICE-UNSUPPORTED", "'cuda'"),
    "no steps": ({}, {}, {}, "FM-NO-STEPS", ""),
    "two writers": (
        {"crc": toy("Checksum"), "a": toy("Count"), "b": toy("Count")},
        {},
        {},
        "FM-TABLE-TWICE",
        "'counts'",
    ),
    "no writer": (
        {"crc": toy("Checksum"), "a": toy("Count"), "b": toy("Shares", table="count")},
        {},
        {},
        "FM-UNKNOWN-TABLE",
        "Did you mean 'counts'",
    ),
    "a table of all, file by file": (
        {"crc": toy("Checksum"), "a": toy("Everything"), "b": toy("Shares", table="everything")},
        {},
        {},
        "FM-TABLE-NOT-BY-FILE",
        "'everything'",
    ),
    "reads its own table": ({"a": toy("Shares", table="shares")}, {}, {}, "FM-CIRCLE", "'a'"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_sentence(case):
    steps, profile, choices, code, value = MISTAKES[case]
    with pytest.raises(ConfigError) as error:
        plan(steps, profile, **choices)
    assert error.value.code == code and value in str(error.value) and "\n" not in str(error.value)


def test_a_plan_that_does_not_fit_is_refused():
    entry = {"device": "cuda", "gpus": 0.4, "cpus": 1}
    with pytest.raises(ResourceError) as error:
        plan({"a": toy("Reads", column="height")}, {"steps": {"a": entry}}, nodes=[Node(name="box", cpus=8, gpus=0.2)])
    assert error.value.code == "FM-WORKERS-DO-NOT-FIT" and "'a'" in str(error.value)
