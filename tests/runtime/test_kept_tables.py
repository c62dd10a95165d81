"""Tables that a stage keeps: the later of two files counts, and a damaged one counts as missing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from framekiln.output.object_store import Store
from framekiln.runtime.second_pass.table_steps import kept_tables, last_files, numbered
from tests.toys import Guests

FIRST, SECOND, THIRD = (f"all-{digit * 12}.parquet" for digit in "9ab")
SCHEMA = Guests().tables["guests"].schema


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path))


def write(store, name, numbers):
    content = pa.table([[f"{n}.jpg" for n in numbers], numbers], schema=SCHEMA)
    store.write_table(f"guests/{name}", numbered(store, content, "guests"))


def kept(store):
    return kept_tables(store, Guests())["guests"]


def test_the_last_file_counts_whatever_its_name(store):
    assert kept(store).equals(SCHEMA.empty_table()) and not last_files(store, "guests", ())
    write(store, SECOND, [0])
    write(store, FIRST, [0, 1])
    assert kept(store)["number"].to_pylist() == [0, 1] and last_files(store, "guests", {THIRD}) == {FIRST}
    write(store, SECOND, [0, 1, 2])  # a file is replaced
    assert kept(store)["number"].to_pylist() == [0, 1, 2] and last_files(store, "guests", {THIRD}) == {SECOND}
    assert last_files(store, "guests", {FIRST}) == set(), "its replacement is there"


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: data[::-1]])
def test_a_damaged_file_counts_as_missing(store, tmp_path, damage):
    write(store, FIRST, [0])
    write(store, SECOND, [0, 1])
    path = tmp_path / "guests" / SECOND
    path.write_bytes(damage(path.read_bytes()))
    assert kept(store)["number"].to_pylist() == [0]


FOREIGN = [
    {"media_id": ["a.jpg"], "number": ["first"]},
    {"number": [1]},
    {"media_id": ["a.jpg"], "frame_index": [1]},  # the table of another step
    {"media_id": ["a.jpg"]},
    {"media_id": ["a.jpg"], "number": [1], "later": ["x"]},
]


@pytest.mark.parametrize("columns", FOREIGN)
def test_a_foreign_file_counts_as_missing(store, columns):
    store.write_table(f"guests/{FIRST}", pa.table(columns))
    assert kept(store).equals(SCHEMA.empty_table())
