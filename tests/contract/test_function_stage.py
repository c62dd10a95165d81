"""`framekiln.stage`: a function with what it declares keeps the contract, and its version follows its code."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, time, timedelta

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.errors import ContractError
from framekiln.contract.function_stage import stage
from framekiln.contract.testing import check_stage, sample_rows
from tests.support.errors import fails
from tests.toys.functions import brightness, described, loudest

NUMBER = {"number": pa.float32()}


@pytest.mark.parametrize("kind", [brightness, described, loudest])
def test_a_function_keeps_the_contract(kind):
    check_stage(kind())


def test_a_function_gets_pixels_sound_and_values_and_gives_a_value_for_each_output():
    rows = sample_rows(["frame_224", "time_s", "sound"], 2)
    result = described()(rows.select(described.inputs)).to_pylist()
    assert result == [{"sides": [360, 480], "moment": "0.00"}, {"sides": [360, 480], "moment": "0.04"}]
    assert loudest()(rows.select(["sound"]))["loudest"].to_pylist() == [8000, 8000]
    assert loudest()(sample_rows(["sound"], 1))["loudest"].to_pylist() == [None]
    assert brightness.function(np.full((2, 2, 3), 7)) == 7
    taken = stage(inputs="tags", outputs={"taken": pa.string()})(taken_at)()
    assert taken(sample_rows(["tags"], 1))["taken"].to_pylist() == ["2024:02:29 12:30:00"]


def test_a_stage_is_not_called_as_its_function():
    for values in ([np.zeros((2, 2, 3))], [1, 2]):
        with fails("FK-STAGE-FUNCTION", "brightness.function("):
            brightness(*values)


def taken_at(tags):
    return tags["exif:DateTimeOriginal"]


def test_columns_are_described_by_their_fields_or_by_the_function():
    about = {item.name: item.metadata for kind in (brightness, described, loudest) for item in kind().outputs}
    assert about["brightness"] == {b"description": b"Mean of all channels."}
    assert about["sides"] == {b"description": b"height, width", b"unit": b"px"}
    assert about["loudest"] == {b"description": b"result of loudest"}


def test_the_report_shows_numbers_and_texts():
    assert brightness().draw({"brightness": 7.25}).caption == "brightness 7.25"
    assert described().draw({"sides": [1, 2], "moment": None}) is None


@pytest.mark.parametrize(
    ("kind", "fits", "does_not"),
    [
        (pa.int32(), 2.0, 2.5),
        (pa.uint64(), 2**64 - 1, np.float32(0.5)),
        (pa.int64(), -(2**63), 2.0**63),
        (pa.list_(pa.int32()), np.array([1.0, 2.0]), np.array([1.0, 2.5])),
        (pa.struct({"a": pa.int8(), "b": pa.float32()}), {"a": 1, "b": 0.1}, {"a": 1.5, "b": 0.1}),
        (pa.map_(pa.string(), pa.int32()), [("a", 2)], [("a", "b")]),
        (pa.map_(pa.string(), pa.int32()), {"a": 2.0}, {"a": 2.5}),
        (pa.struct({"a": pa.int8(), "b": pa.string()}), (1.0, "c"), (1.5, "c")),
        (pa.list_(pa.struct({"a": pa.float32()})), [{"a": 1}, {}], [{"a": 1}, {"A": 1}]),
        (pa.list_(pa.string()), ["abc"], "abc"),
        (pa.float32(), float("inf"), 1e39),
        (pa.float16(), np.float64(65504), np.float64(70000)),
        (pa.list_(pa.float16(), 2), np.array([1e4, np.inf]), np.array([1e4, 1e5])),
        (pa.timestamp("ms"), datetime(2024, 2, 29, 12, 0, 0, 500_000), datetime(2024, 2, 29, 12, 0, 0, 500)),
        (pa.timestamp("s", "UTC"), datetime(2024, 2, 29, tzinfo=UTC), datetime(2024, 2, 29, 0, 0, 0, 9, UTC)),
        (pa.timestamp("s"), 5.0, 5.5),
        (pa.duration("s"), timedelta(seconds=2), timedelta(seconds=1.5)),
        (pa.date32(), date(2024, 2, 29), datetime(2024, 2, 29, 12)),
        (pa.time32("s"), time(12), time(12, microsecond=1)),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_an_error(kind, fits, does_not):
    one, rows = stage(inputs="time_s", outputs={"a": kind}), sample_rows(["time_s"], 1)
    for result in (fits, None):
        assert one(named("right", "time_s", result))()(rows).column("a").null_count == (result is None)
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        one(named("wrong", "time_s", does_not))()(rows)


@pytest.mark.parametrize("result", [(1.0,), {"a": 1.0}, {"a": 1.0, "c": 2.0}, 1.0])
def test_a_result_with_other_outputs_ends_the_run(result):
    both = stage(inputs="time_s", outputs={"a": pa.float32(), "b": pa.float32()})
    with pytest.raises(ContractError, match="wrong returned a .*; return a tuple or a dict of a, b") as error:
        both(named("wrong", "time_s", result))()(sample_rows(["time_s"], 2))
    assert error.value.code == "FK-UNDECLARED-COLUMNS"


def test_one_output_may_come_in_a_dict_of_its_name_and_of_no_other():
    one = stage(inputs="time_s", outputs={"a": pa.float32()})
    rows = sample_rows(["time_s"], 2)
    assert one(named("right", "time_s", {"a": 1.0}))()(rows)["a"].to_pylist() == [1.0, 1.0]
    with pytest.raises(ContractError) as error:
        one(named("wrong", "time_s", {"b": 1.0}))()(rows)
    assert error.value.code == "FK-UNDECLARED-COLUMNS"
    whole = stage(inputs="time_s", outputs={"a": pa.struct({"b": pa.float32()})})
    assert whole(named("whole", "time_s", {"b": 1.0}))()(rows)["a"].to_pylist() == [{"b": 1.0}] * 2


def named(name, parameters, result):
    space = {"result": result}
    exec(f"def {name}({parameters}): return result", space)
    return space[name]


@pytest.mark.parametrize(
    ("function", "outputs"),
    [
        (lambda image: 0, NUMBER),
        (print, NUMBER),
        (named("two", "a, b", 0), NUMBER),
        (named("none", "", 0), NUMBER),
        (named("empty", "image", 0), {}),
        (named("no_types", "image", 0), ["number"]),
        (named("a_class", "image", 0), {"number": float}),
    ],
)
def test_a_mistake_is_found_where_the_stage_is_made(function, outputs):
    with fails("FK-STAGE-FUNCTION"):
        stage(inputs="frame", outputs=outputs)(function)


def test_a_version_of_ones_own_stands_for_the_code():
    kinds = [stage(inputs="frame", outputs=NUMBER, version=7)(named("f", "a", result)) for result in (1, 2)]
    assert [kind().version for kind in kinds] == [7, 7]


def test_a_function_travels_by_name_or_by_value():
    assert type(pickle.loads(pickle.dumps(brightness()))) is brightness

    def twice(number):
        return 2 * number

    @stage(inputs="time_s", outputs=NUMBER)
    def local(time_s):
        return twice(time_s)

    copy = cloudpickle.loads(cloudpickle.dumps(local()))
    assert copy(sample_rows(["time_s"], 2))["number"].to_pylist() == pytest.approx([0, 0.08])
