"""Numbers of the report: complete histograms, even samples, readable formats."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framekiln.output.object_store import Store
from framekiln.reporting.kit.histograms import distributions
from framekiln.reporting.kit.texts import axis_value, cell, count, duration, elapsed, number, share, shorten
from framekiln.reporting.table_rows import Extract, extract, find_table


def test_large_tables_are_sampled_evenly(tmp_path):
    store = Store(str(tmp_path))
    for part in range(10):
        rows = pa.table({"x": pa.array(range(part * 1000, part * 1000 + 1000), pa.int32()), "name": ["y" * 500] * 1000})
        store.write_table(f"frames/{part}.parquet", rows)
    table = find_table(store, "frames")
    assert table.rows == 10_000
    part = extract(store, table, most_rows=100)
    assert part.taken == 100
    assert not part.whole
    assert part.columns["x"].to_pylist() == list(range(0, 10_000, 100))
    few = extract(store, table, most_rows=10**6, most_files=5)
    assert few.taken == 5000
    assert few.columns["x"][0].as_py() // 1000 == 1
    assert extract(store, table).whole
    assert max(len(name) for name in part.columns["name"].to_pylist()) == 120


def described(values, kind):
    """Return the distribution of one column."""
    table = pa.table({"x": pa.array(values, kind)})
    part = Extract(schema=table.schema, columns={"x": table["x"]}, taken=table.num_rows, whole=True)
    return distributions(part)[0]


@given(st.lists(st.one_of(st.none(), st.floats(width=64)), max_size=400), st.sampled_from([pa.float32(), pa.float64()]))
def test_every_number_is_in_one_bar(values, kind):
    with np.errstate(over="ignore"):
        array = pa.array(
            [None if v is None else float(np.float32(v)) if kind == pa.float32() else v for v in values], kind
        )
    about = described(array.to_pylist(), kind)
    finite = [v for v in array.to_pylist() if v is not None and np.isfinite(v)]
    assert about.nulls == array.null_count
    if about.histogram:
        bars = about.histogram
        assert sum(bar.rows for bar in bars.bars) + bars.beyond == len(finite)
        assert bars.low <= bars.high
    else:
        assert not finite or max(finite) == min(finite) or max(finite) - min(finite) >= 1e300


@given(st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=300))
def test_every_whole_number_is_in_one_bar(values):
    about = described(values, pa.int64())
    if len(set(values)) == 1:
        assert about.histogram is None and about.facts == {"always": number(float(values[0]))}
        return
    bars = about.histogram
    assert sum(bar.rows for bar in bars.bars) + bars.beyond == len(values)
    if max(values) - min(values) < 24:
        assert {bar.label: bar.rows for bar in bars.bars if bar.rows} == {
            number(float(v)): values.count(v) for v in set(values)
        }


def test_a_long_tail_does_not_squeeze_the_rest():
    about = described([*(i / 1000 for i in range(1000)), 1e6], pa.float64())
    assert about.histogram.high < 2
    assert about.histogram.beyond >= 1
    assert about.facts["max"] == "1,000,000"
    assert any("beyond the axis" in note for note in about.notes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(12345), "12,345"),
        (number(0.0032), "0.0032"),
        (number(3.14159), "3.14"),
        (number(1234.5), "1,234"),
        (number(2e-7), "2e-07"),
        (number(float("nan")), "not a number"),
        (duration(0.0032), "3.2 ms"),
        (duration(0.0000041), "4.1 µs"),
        (duration(14.23), "14.2 s"),
        (duration(133), "2 min 13 s"),
        (duration(59.99), "1 min 0 s"),
        (duration(11100), "3 h 5 min"),
        (duration(40e6 / 3.53), "131 days 3 h"),
        (elapsed(3725), "1:02:05"),
        (elapsed(40e6 / 3.53), "131 days 3 h"),
        (share(1, 1000), "<1%"),
        (share(999, 1000), ">99%"),
        (share(1, 4), "25%"),
        (axis_value(4e-17, 0.007), "0"),
        (axis_value(-0.001, 100), "0"),
        (axis_value(0.0034567, 0.007), "0.00346"),
        (shorten("abcdefghij", 5), "ab…ij"),
        (count(0, "row"), "no rows"),
        (count(0, "row", zero="0"), "0 rows"),
        (count(1203, "stretch", "stretches"), "1,203 stretches"),
        (cell(None), "–"),
        (cell([1, 2]), "[2]"),
    ],
)
def test_number_formats(text, expected):
    assert text == expected
