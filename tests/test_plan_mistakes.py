"""Whatever can be known to be wrong with a plan is refused before anything starts, in one sentence with the fix."""

from __future__ import annotations

import pytest

from pipeline.errors import ConfigError, ResourceError
from tests.plan_factory import plan, toy

MISTAKES = {
    "two makers": ({"a": toy("Checksum"), "b": toy("Picky")}, {}, {}, "Steps 'a' and 'b' both add a column 'crc'"),
    "nobody makes": ({"a": toy("Double")}, {}, {}, "'a' reads a column 'crc' that no step adds"),
    "no module": ({"a": {"use": "stages.lightning:Lighting"}}, {}, {}, "there is no module 'stages.lightning'"),
    "no class": ({"a": {"use": "tests.toys:Cheksum"}}, {}, {}, "Did you mean 'Checksum'"),
    "no stage": ({"a": {"use": "pathlib:Path"}}, {}, {}, "which is not a Stage class"),
    "unknown setting": (
        {"a": toy("Checksum", colum="frame")},
        {},
        {},
        "'a' has no setting 'colum'. Did you mean 'column'",
    ),
    "wrong type": ({"a": toy("Picky", refuse="x")}, {}, {}, "step 'a': setting 'refuse' is wrong"),
    "no workers": ({"a": toy("Checksum")}, {}, {"settings": ("a.workers=0",)}, "must be a number from 1, or auto"),
    "unknown chosen": ({"a": toy("Checksum")}, {}, {"stages": ("b",)}, "no step 'b'"),
    "unknown in profile": ({"crc": toy("Checksum")}, {"steps": {"crk": {}}}, {}, "'crk' .* Did you mean 'crc'"),
    "bad set": ({"a": toy("Checksum")}, {}, {"settings": ("a.column",)}, "not of the form step.key=value"),
    "set unknown step": ({"crc": toy("Checksum")}, {}, {"settings": ("crk.x=1",)}, "Did you mean 'crc'"),
    "set decode": ({"crc": toy("Checksum")}, {}, {"settings": ("decode.every_nht=1",)}, "Did you mean 'every_nth'"),
    "device": ({"a": toy("Checksum")}, {"steps": {"a": {"device": "cuda"}}}, {}, "cannot run on 'cuda', only on cpu"),
    "no steps": ({}, {}, {}, "has no steps"),
    "two writers": (
        {"crc": toy("Checksum"), "a": toy("Count"), "b": toy("Count")},
        {},
        {},
        "Steps 'a' and 'b' both write a table 'counts'",
    ),
    "nobody writes": (
        {"crc": toy("Checksum"), "a": toy("Count"), "b": toy("Shares", table="count")},
        {},
        {},
        "'b' reads a table 'count' that no step writes. Did you mean 'counts'",
    ),
    "a table of all, file by file": (
        {"crc": toy("Checksum"), "a": toy("Everything"), "b": toy("Shares", table="everything")},
        {},
        {},
        "'b' works file by file, which the table 'everything' of 'a' does not",
    ),
    "reads its own table": ({"a": toy("Shares", table="shares")}, {}, {}, "in a circle"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_sentence(case):
    steps, profile, choices, message = MISTAKES[case]
    with pytest.raises(ConfigError, match=message) as caught:
        plan(steps, profile, **choices)
    assert "\n" not in str(caught.value)


def test_a_plan_that_does_not_fit_is_refused():
    with pytest.raises(ResourceError, match="'decode' does not fit"):
        plan({"a": toy("Checksum")}, {"decode": {"cpus": 9}})
