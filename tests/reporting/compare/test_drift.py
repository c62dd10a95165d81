"""Drift between the results of two runs."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framekiln.contract.columns import field
from framekiln.contract.stage import Scope, Stage, Table
from framekiln.output.object_store import Store
from framekiln.reporting.compare.comparison import compare
from framekiln.reporting.compare.drift import common, compare_columns, find_drift, sample
from framekiln.reporting.compare.runs import read_run, read_sides
from tests.support.runs.compare_factory import invoke, make
from tests.support.runs.report_factory import Marked, step

__all__ = ["make"]


class Measured(Marked):
    """A stage that compares its own results."""

    def agreement(self, a, b, table=""):
        assert a.column_names == ["level", "kind", "sharp", "things"]
        if self.config.word == "broken":
            raise KeyError("level")
        off = np.abs(a["level"].to_numpy() - b["level"].to_numpy()).mean()
        return {"level_difference": float(off), "drift": min(1.0, float(off))}


class Events(Stage):
    """A stage of the second pass."""

    scope = Scope.MEDIA

    inputs = ("media_id",)

    @property
    def tables(self):
        schema = pa.schema([("media_id", pa.string()), ("event", pa.int32()), ("size", pa.float32())])
        return {"events": Table(schema=schema, keys=("media_id", "event"), description="events")}

    def __call__(self, batch):
        raise NotImplementedError


def raise_level(root, by):
    """Raise `level` in the row of the first file of frames."""
    store = Store(root)
    path = f"frames/{store.names('frames')[0]}"
    table = store.read_table(path)
    at = table.column_names.index("level")
    more = pa.array([table["level"][0].as_py() + by], pa.float32())
    store.write_table(path, table.set_column(at, table.schema.field("level"), [more]))


def drift(a, b, most=5000):
    return find_drift(read_run(a), read_run(b), ["decode", "marked"], most)


def test_equal_results_do_not_drift(make):
    result = drift(make("a"), make("b"))
    assert set(result) == {"marked"}
    assert (result["marked"].value, result["marked"].rows) == (0, 2)
    assert {column.name: column.equal for column in result["marked"].tables[0].columns}["things"] == 1


def test_without_a_measure_of_its_own_a_stage_drifts_by_its_worst_column(make):
    a, b = make("a"), make("b")
    raise_level(b, 7.5)
    result = drift(a, b)["marked"]
    level = result.tables[0].columns[0]
    assert (level.name, level.unit, level.equal, level.largest, level.mean) == ("level", "dB", 0.5, 7.5, 3.75)
    assert result.value == 0.5
    assert invoke("--baseline", a, b, "--fail-if", "drift>0.4").exit_code == 1
    assert invoke("--baseline", a, b, "--fail-if", "drift>0.6").exit_code == 0


@pytest.mark.parametrize("word", ["here", "broken"])
def test_a_stage_s_own_measure_of_drift_counts(make, word):
    steps = {"marked": step("tests.reporting.compare.test_drift:Measured", word=word)}
    a, b = make("a", steps=steps), make("b", steps=steps)
    raise_level(b, 0.5)
    result = drift(a, b)["marked"]
    if word == "here":
        assert result.value == 0.25
        assert result.figures == {"level_difference": 0.25, "missing": 0}
    else:
        assert result.value == 0.5 and "KeyError" in result.tables[0].note
    assert invoke(a, b).exit_code == 0


def test_files_that_changed_and_rows_of_one_side_are_not_compared(make):
    a, b = make("a"), make("b")
    store = Store(b)
    store.remove(f"frames/{store.names('frames')[0]}")
    result = drift(a, b)["marked"]
    assert (result.rows, result.tables[0].only_first, result.tables[0].only_second) == (1, 1, 0)
    assert result.figures["missing"] == 0.5
    with (make.folder / "b.png").open("ab") as file:
        file.write(b"more")
    assert drift(a, make("c"))["marked"].rows == 1


def test_no_common_rows_are_not_measured(make, tmp_path):
    a, b = make("a"), make("b")
    for name in Store(b).names("frames"):
        Store(b).remove(f"frames/{name}")
    result = compare(read_sides([a, b]), {}, drift_rows=100).pairs[0].drift["marked"]
    assert result.value is None
    done = invoke(a, b, "--fail-if", "marked.drift>0.5")
    assert "was not measured" in str(done.exception)


def large(root, order, cut, rows=4000):
    """A table of many rows in some order, divided into files at random."""
    table = pa.table(
        {
            "media_id": [f"{i // 100}.mp4" for i in range(rows)],
            "frame_index": pa.array([i % 100 for i in range(rows)], pa.int32()),
            "level": pa.array(np.arange(rows), pa.float32()),
        }
    ).take(pa.array(order))
    store, start = Store(str(root)), 0
    for i, stop in enumerate([*cut, rows]):
        store.write_table(f"frames/{i}.parquet", table.slice(start, stop - start))
        start = stop
    return store


def test_both_sides_choose_the_same_rows_however_they_are_cut(tmp_path):
    chance, keys = np.random.default_rng(0), ("media_id", "frame_index")
    sides = large(tmp_path / "a", np.arange(4000), [10, 2000]), large(tmp_path / "b", chance.permutation(4000), [3999])
    result, every, _ = sample(sides, "frames", keys, ["level"], 400)
    a, b, only = common(result, keys)
    assert every == 10 and only == (0, 0)
    assert 300 < len(a) < 500
    assert a["level"].to_pylist() == b["level"].to_pylist()
    assert len(set(a["media_id"].to_pylist())) > 35  # all over the collection
    assert sample(sides, "frames", keys, ["level"], 4000)[1] == 1


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [([0, 1], [0, 1], 0), ([0, 1], [0], 0.5), ([], [3], 1), ([], [], 0), ([0, 1, 2, 3], [0, 1, 2, 4], 1 - 3 / 5)],
)
def test_rows_of_the_second_pass_are_results_themselves(make, first, second, want):
    steps = {"marked": step("tests.reporting.compare.test_drift:Events")}
    roots = make("a", steps=steps), make("b", steps=steps)
    for root, numbers in zip(roots, (first, second), strict=True):
        rows = [{"media_id": "a.png", "event": number, "size": 1.0} for number in numbers]
        Store(root).write_table("events/x.parquet", pa.Table.from_pylist(rows, schema=Events().tables["events"].schema))
    assert drift(*roots)["marked"].value == pytest.approx(want)


NUMBERS = st.lists(st.tuples(*[st.none() | st.floats(-1e6, 1e6) | st.just(float("nan"))] * 2), min_size=1, max_size=20)


@given(NUMBERS)
def test_numbers_are_compared_as_they_are_one_by_one(pairs):
    a, b = (
        pa.table([pa.array(side, pa.float64())], schema=pa.schema([field("x", pa.float64(), "")]))
        for side in zip(*pairs, strict=True)
    )
    (result,) = compare_columns(a, b)

    def same(x, y):
        return (x is None and y is None) or (None not in (x, y) and (x == y or (math.isnan(x) and math.isnan(y))))

    assert result.equal == pytest.approx(sum(same(x, y) for x, y in pairs) / len(pairs))
    off = [abs(x - y) for x, y in pairs if None not in (x, y) and not (math.isnan(x) or math.isnan(y))]
    assert result.largest == (max(off) if off else None)
    assert compare_columns(a, a)[0].equal == 1


def test_texts_lists_and_other_types_are_compared():
    a = pa.table({"t": ["x", None, "z"], "l": [[1.0], None, [2.0, 3.0]], "i": pa.array([1, 2, 3], pa.int32())})
    b = pa.table({"t": ["x", None, "y"], "l": [[1.0], [], [2.0, 3.0]], "i": pa.array([1, 2, 4], pa.int64())})
    assert [round(column.equal, 2) for column in compare_columns(a, b)] == [0.67, 0.67, 0.67]


def test_results_of_an_older_version_are_compared_by_the_code_at_hand(make):
    a = make("a", steps={"marked": step(word="here", gone=1) | {"version": 0}})
    assert drift(a, make("b"))["marked"].value == 0
    assert drift(make("c"), a)["marked"].value == 0


def test_another_class_is_not_asked_about_results(make):
    a, b = make("a"), make("b", steps={"marked": step("tests.reporting.compare.test_drift:Measured", word="here")})
    raise_level(b, 0.25)
    assert drift(a, b)["marked"].value == 0.5


def test_a_step_without_its_code_has_no_drift_and_a_note(make):
    steps = {"marked": step("nowhere.at_all:Stage")}
    a, b = make("a", steps=steps), make("b", steps=steps)
    assert drift(a, b) == {}
    assert "No results of marked were compared" in " ".join(
        compare(read_sides([a, b]), {}, drift_rows=9).pairs[0].notes
    )
