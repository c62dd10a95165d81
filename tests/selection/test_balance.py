"""Balanced choices are fair, whatever the sizes of groups."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.output.object_store import Store
from framekiln.selection.rows import Rows
from framekiln.selection.selection import take_balanced


@given(st.lists(st.integers(0, 4), max_size=30), st.none() | st.integers(1, 40))
@settings(max_examples=60)
def test_a_balance_is_fair(values, limit):
    table = pa.table({"media_id": pa.array(range(len(values))), "group": pa.array(values, pa.int64())})
    chosen = take_balanced(Rows(Store("x"), {"frames": table}), table, '"group"', limit)["group"].to_pylist()
    sizes = {value: chosen.count(value) for value in set(values)}
    assert len(chosen) == (
        min(limit, len(values)) if limit else min([values.count(v) for v in sizes] or [0]) * len(sizes)
    )
    for value, size in sizes.items():
        assert size >= min(max(sizes.values()) - 1, values.count(value))
