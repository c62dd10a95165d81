"""Values of run.json with other types than were written are found, one by one."""

from __future__ import annotations

import json

import pytest

from framekiln.runtime.run.record_types import wrong_type
from tests.support.runs.report_factory import record

WRONG = {
    "output": 1e308,
    "profile_name": None,
    "folder": [{}],
    "started": "x",
    "seconds": {},
    "files": "x",
    "shard": [0],
    "machines": ["x"],
    "gpu_names": -1,
    "dummies": True,
    "waves": [1],
    "choices": {"stages": 3},
    "steps": {"crc": []},
    "figures": [],
    "versions": {},
    "throughput": {"steps": {"crc": {"rows": "x"}}},
}
NESTED = {
    ("steps", "marked", "placement"): "x",
    ("steps", "marked", "weights"): -1,
    ("figures", "marked", "busy_s"): [],
}


@pytest.fixture
def written(tmp_path):
    return json.loads(json.dumps(record(tmp_path, tmp_path / "out")))


def test_what_a_run_writes_is_right(written):
    assert wrong_type(written) is None
    assert wrong_type({"steps": {}}) is None, "earlier versions wrote fewer keys"
    assert wrong_type(written | {"later": 1}) is None


@pytest.mark.parametrize("key", WRONG)
def test_a_value_of_another_type_is_named(written, key):
    assert wrong_type(written | {key: WRONG[key]}).startswith(key)


@pytest.mark.parametrize("place", NESTED)
def test_a_value_inside_is_named_with_its_place(written, place):
    *outer, last = place
    inside = written
    for key in outer:
        inside = inside[key]
    inside[last] = NESTED[place]
    assert wrong_type(written).startswith(".".join(place))
