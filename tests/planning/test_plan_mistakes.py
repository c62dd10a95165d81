"""Mistakes in a plan are refused before anything starts, in one sentence with the fix."""

from __future__ import annotations

import pyarrow as pa
import pytest

from framekiln.contract import field
from framekiln.planning.processes.resources import Node
from tests.support.errors import fails
from tests.support.runs.plan_factory import plan, toy
from tests.toys.columns import Double, Neighbours
from tests.toys.tables import Count


class AddsFrames(Double):
    """It adds a column that decoding adds."""

    inputs = ("time_s",)
    outputs = pa.schema([field("frame_224", pa.int32(), "no pixels")])


class ReadsItself(Double):
    """It reads the column that it adds."""

    inputs = ("twice",)


class LooksAhead(Neighbours):
    """It looks ahead in a column of another step."""

    inputs = ("crc", "clip_index")


class CountsPixels(Count):
    """It reads pixels for a table."""

    inputs = ("media_id", "frame")


class ReadsTable(Double):
    """It reads a table before tables are there."""

    input_tables = ("counts",)


def own(name):
    return {"use": f"{__name__}:{name}"}


CRC = {"crc": toy("Checksum")}
COUNT = {**CRC, "a": toy("Count")}
MISTAKES = {
    "two producers": ({**CRC, "b": toy("Picky")}, "FK-COLUMN-TWICE", "'crc'"),
    "no producer": ({"a": toy("Double")}, "FK-UNKNOWN-COLUMN", "'crc'"),
    "no pixels of that name": ({"a": toy("Checksum", column="frme")}, "FK-UNKNOWN-COLUMN", "Did you mean 'frame'"),
    "a column of a shipped step": ({"a": {"use": "shots"}}, "FK-UNKNOWN-COLUMN", "'features'"),
    "a table of a shipped step": ({"a": {**toy("Checksum"), "on": {"shots": "middle"}}}, "FK-UNKNOWN-TABLE", "'shots'"),
    "one of several": (
        {"a": {**toy("Checksum"), "where": "identity = 0"}},
        "FK-SELECTION-COLUMN",
        "list_contains(identities, 0)",
    ),
    "unknown setting": ({"a": toy("Checksum", colum="frame")}, "FK-UNKNOWN-SETTING", "Did you mean 'column'"),
    "wrong type": ({"a": toy("Picky", refuse="x")}, "FK-INVALID-SETTING", "'refuse'"),
    "no steps": ({}, "FK-NO-STEPS", ""),
    "two writers": ({**COUNT, "b": toy("Count")}, "FK-TABLE-TWICE", "'counts'"),
    "no writer": ({**COUNT, "b": toy("Shares", table="count")}, "FK-UNKNOWN-TABLE", "Did you mean 'counts'"),
    "a table of all, file by file": (
        {**CRC, "a": toy("Everything"), "b": toy("Shares", table="everything")},
        "FK-TABLE-NOT-BY-FILE",
        "'everything'",
    ),
    "reads its own table": ({"a": toy("Shares", table="shares")}, "FK-CIRCLE", "'a'"),
    "reads its own column": ({"a": own("ReadsItself")}, "FK-OWN-COLUMN", "'twice'"),
    "a name of decoding's": ({"a": own("AddsFrames")}, "FK-COLUMN-RESERVED", "'frame_224'"),
    "looks ahead of a step": ({**CRC, "a": own("LooksAhead")}, "FK-HALO-COLUMN", "'crc'"),
    "pixels for a table": ({"a": own("CountsPixels")}, "FK-PIXELS-TOO-LATE", "'frame'"),
    "a table too early": ({**COUNT, "b": own("ReadsTable")}, "FK-TABLE-TOO-EARLY", "'counts'"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_in_steps(case):
    steps, code, value = MISTAKES[case]
    with fails(code, value):
        plan(steps)


@pytest.mark.parametrize(
    ("setting", "code", "value"),
    [
        ("crc.workers=0", "FK-INVALID-SETTING", "'workers'"),
        ("crc.column", "FK-SET-FORM", "'crc.column'"),
        ("crc.on.every=2", "FK-SET-FORM", "crc.on={every: 2}"),
        ("crk.x=1", "FK-UNKNOWN-STEP", "Did you mean 'crc'"),
        ("decode.every_nht=1", "FK-UNKNOWN-SETTING", "Did you mean 'every_nth'"),
    ],
)
def test_mistakes_in_set(setting, code, value):
    with fails(code, value):
        plan(CRC, settings=(setting,))


def test_mistakes_in_names_and_devices():
    with fails("FK-UNKNOWN-STEP", "'b'"):
        plan(CRC, stages=("b",))
    with fails("FK-UNKNOWN-STEP", "Did you mean 'crc'"):
        plan(CRC, {"steps": {"crk": {}}})
    with fails("FK-DEVICE-UNSUPPORTED", "'cuda'"):
        plan(CRC, {"steps": {"crc": {"device": "cuda"}}})


def test_a_plan_that_does_not_fit_is_refused():
    entry = {"device": "cuda", "gpus": 0.4, "cpus": 1}
    with fails("FK-WORKERS-DO-NOT-FIT", "'a'"):
        plan({"a": toy("Reads", column="height")}, {"steps": {"a": entry}}, nodes=[Node(name="box", cpus=8, gpus=0.2)])
