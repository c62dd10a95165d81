"""`check_stage`: each check fails on a stage that breaks its rule, and on no other."""

from __future__ import annotations

import inspect

import pyarrow as pa
import pytest

from framekiln.contract.stage import Stage
from framekiln.contract.testing import (
    DECLARATION_CHECKS,
    ROW_CHECKS,
    TABLE_CHECKS,
    SampleMedia,
    check_stage,
    declarations,
    results,
    sample_rows,
)
from framekiln.contract.testing.sample import HEIGHT
from tests.toys import heavy_import, rule_breakers
from tests.toys.rule_breakers import Careful, FirstByte, Good, GoodTables, Locks, Squared, Watches

BREAKERS = [
    kind
    for module in (rule_breakers, heavy_import)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Stage) and (kind.__doc__ or "").startswith("`check_")
]
CHECKS = {*DECLARATION_CHECKS, *ROW_CHECKS, *TABLE_CHECKS}


@pytest.mark.parametrize("kind", BREAKERS, ids=lambda kind: kind.__name__)
def test_the_check_of_a_broken_rule_fails(kind):
    check = kind.__doc__.strip("`.")
    with pytest.raises(AssertionError, match=rf"^{kind.__name__} fails {check}: "):
        check_stage(kind())


@pytest.mark.parametrize("kind", [Good, GoodTables, Careful])
def test_a_stage_that_keeps_every_rule_passes(kind):
    check_stage(kind())


def test_every_check_is_run_and_has_a_stage_that_breaks_it():
    functions = [item for module in (declarations, results) for item in inspect.getmembers(module, inspect.isfunction)]
    assert {function for name, function in functions if name.startswith("check_")} == CHECKS
    assert {kind.__doc__.strip("`.") for kind in BREAKERS} == {check.__name__ for check in CHECKS}


def test_a_stage_whose_calls_wait_for_each_other_is_thread_safe(monkeypatch):
    monkeypatch.setattr(results, "_STUCK_S", 0.001)
    check_stage(Locks())


def test_rows_of_another_step_are_passed_in():
    with pytest.raises(ValueError, match="'redness'"):
        check_stage(Squared())
    check_stage(Squared(), rows=pa.table({"redness": pa.array([1.0, 2.0, 3.0], pa.float32()), "other": [1, 2, 3]}))


def test_a_stage_that_reads_media_is_given_some():
    check_stage(Watches())


def test_a_stage_is_set_up_with_its_weights(tmp_path):
    (tmp_path / "toy").write_bytes(b"\7")
    check_stage(FirstByte(), weights={"toy": tmp_path / "toy"})


def test_sample_rows_are_as_decoding_gives_them():
    columns = ("frame", "frame_224", "sound", "time_s", "media_type")
    rows, photo = sample_rows(columns, 3), sample_rows(columns, 1)
    assert (rows["frame"][0]["height"].as_py(), rows["frame_224"][0]["height"].as_py()) == (HEIGHT, HEIGHT)
    assert sample_rows(["frame_90"])["frame_90"][0]["height"].as_py() == HEIGHT // 4
    assert len(rows["sound"][2]) == 640 and rows["time_s"].to_pylist() == [0, 0.04, 0.08]
    assert photo["media_type"].to_pylist() == ["photo"] and photo["sound"].null_count == photo["time_s"].null_count == 1
    assert [number for number, _ in SampleMedia(2).frames("frame")] == [0, 1]
