"""An object is there completely or not at all."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from pipeline.errors import OutputError
from pipeline.storage import Store


@pytest.fixture(params=["path", "url"])
def store(request, tmp_path):
    return Store(str(tmp_path / "out") if request.param == "path" else f"file://{tmp_path}/out")


def test_what_is_written_is_read(store):
    store.prepare()
    store.write("a/b.bin", b"data")
    store.write_table("t/x.parquet", pa.table({"x": [1, 2]}))
    assert store.read("a/b.bin") == b"data"
    assert store.read_table("t/x.parquet", ["x"])["x"].to_pylist() == [1, 2]
    assert store.count_rows("t/x.parquet") == 2
    assert store.names("t") == ["x.parquet"] and store.folders() == ["a", "t"]
    assert store.names("nothing") == []
    assert store.exists("a/b.bin") and not store.exists("a")


def test_a_failed_write_leaves_nothing(store, tmp_path):
    store.prepare()
    with pytest.raises(AttributeError):
        store.write_table("t/x.parquet", "no table")
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == []


def test_a_killed_run_is_swept(store, tmp_path):
    store.prepare()
    (tmp_path / "out" / "t").mkdir()
    (tmp_path / "out" / "t" / ".tmp-1-x.parquet").write_bytes(b"half")
    assert store.names("t") == []
    with pytest.raises(KeyboardInterrupt), store.writing():
        raise KeyboardInterrupt
    with store.writing():
        assert list((tmp_path / "out" / "t").iterdir()) == []
    assert store.names("") == []


def test_workers_get_the_same_store(store):
    store.write("a", b"1")
    assert pickle.loads(pickle.dumps(store)).read("a") == b"1"


def test_an_unwritable_output_is_said_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot be written .* choose another with --output"):
        Store(str(tmp_path / "file" / "out")).prepare()
