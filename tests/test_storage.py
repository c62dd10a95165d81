"""An object is there completely or not at all."""

from __future__ import annotations

import errno
import pickle
import shutil
from urllib.parse import unquote

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow.fs import FSSpecHandler, PyFileSystem

from pipeline.errors import GoneError, OutputError
from pipeline.media.listing import list_media
from pipeline.media.names import as_folder, media_id
from pipeline.media.store import read_bytes
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


@pytest.mark.parametrize("name", ["a b ü", "a%20b%20%C3%BC", "50% [x]", "50%25 [x]"])
def test_urls_may_be_written_as_people_write_them(tmp_path, name):
    store = Store(f"file://{tmp_path}/{name}")
    store.prepare()
    store.write("a.bin", b"data")
    assert (tmp_path / unquote(name) / "a.bin").read_bytes() == b"data"
    assert store.url("a.bin") == f"file://{tmp_path}/{name}/a.bin"
    assert read_bytes(list_media(store.root)[0]) == b"data", "an input of that name is the same folder"


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a//b", "./a", "a/.", "..", "a\0b"])
def test_nothing_leaves_the_output(store, tmp_path, path):
    store.prepare()
    for act in (lambda: store.write(path, b"1"), lambda: store.read(path), lambda: store.exists(path)):
        with pytest.raises(ValueError, match="is not a path below"):
            act()
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "name", ["../../x.jpg", "\x01\n\0" * 80, "ü" * 250, "/".join(["deep" * 30] * 30), "/etc/passwd", "."]
)
def test_files_of_any_name_lie_in_the_output(store, tmp_path, name):
    path = f"images/crop-1/{as_folder(media_id(name))}/00000000.png"
    store.prepare()
    store.write(path, b"1")
    (found,) = (found for found in (tmp_path / "out").rglob("*.png"))
    assert store.read(path) == b"1" and found.is_relative_to(tmp_path / "out" / "images" / "crop-1")
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("root", "url"),
    [
        ("file:///{}/out/?a=b", "file:///{}/out/frames?a=b"),
        ("{}/what?/", "{}/what?/frames"),
        ("{}/out", "{}/out/frames"),
    ],
)
def test_the_place_of_an_object_is_one_that_can_be_given_again(tmp_path, root, url):
    assert Store(root.format(tmp_path)).url("frames") == url.format(tmp_path)


def test_a_failed_write_leaves_nothing(store, tmp_path):
    store.prepare()
    with pytest.raises(AttributeError):
        store.write_table("t/x.parquet", "no table")
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == []


def test_a_killed_run_is_swept(store, tmp_path):
    store.prepare()
    (tmp_path / "out" / "t").mkdir()
    (tmp_path / "out" / "t" / ".tmp-1-abc-x.parquet").write_bytes(b"half")
    assert store.names("t") == []
    store.sweep({"2"})
    assert len(list((tmp_path / "out" / "t").iterdir())) == 1
    store.sweep({"1"})
    assert list((tmp_path / "out" / "t").iterdir()) == []


def test_workers_get_the_same_store(store):
    store.write("a", b"1")
    assert pickle.loads(pickle.dumps(store)).read("a") == b"1"
    assert pickle.loads(pickle.dumps(store.of_run("12ab"))).__reduce__() == store.of_run("12ab").__reduce__()


def test_what_has_gone_or_cannot_be_read_is_said_in_one_sentence(store, tmp_path):
    store.prepare()
    with pytest.raises(GoneError, match=r"t/x.parquet has gone .* run the same command again"):
        store.read_table("t/x.parquet")
    with pytest.raises(FileNotFoundError):
        store.read("x")
    store.remove("x")


def test_a_root_that_was_removed_is_not_made_again(store, tmp_path):
    store.prepare()
    running = store.of_run("12ab")
    running.write("t/x", b"1")
    shutil.rmtree(tmp_path / "out" / "t")
    running.write("t/x", b"1")
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(OutputError, match=r"cannot be written any more \(No such file.*\); look what removed it"):
        running.write("t/x", b"1")
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way_of_a_folder_is_said(store, tmp_path):
    store.prepare()
    store.write("t", b"a file")
    with pytest.raises(OutputError, match="move the file that stands where a folder should be"):
        store.write_table("t/x.parquet", pa.table({"x": [1]}))


class Bucket(MemoryFileSystem):
    """Objects without renaming; the next writes fail after some bytes, when told so."""

    store, pseudo_dirs, cachable = {}, [""], False
    fails = False

    def _open(self, path, mode="rb", **more):
        opened = super()._open(path, mode, **more)
        if "w" in mode and self.fails:
            write = opened.write

            def cut(data):
                write(bytes(data)[: len(data) // 2])
                raise OSError(errno.EIO, "the connection was cut")

            opened.write = cut
        return opened


@pytest.fixture
def bucket():
    files = Bucket()
    files.store.clear()
    made = Store("/out")
    made._files, made._renames = PyFileSystem(FSSpecHandler(files)), False
    return made, files


def streamed(store, *, broken=False):
    with store.writing("t/x") as stream:
        stream.write(b"1234")
        stream.write(b"5678")
        if broken:
            raise KeyError


def test_a_stream_is_there_when_its_block_has_ended_well(store, bucket):
    for target in (store, bucket[0]):
        with pytest.raises(KeyError):
            streamed(target, broken=True)
        assert not target.names("t") and not target.exists("t/x")
        streamed(target)
        assert target.read("t/x") == b"12345678" and target.names("t") == ["x"]


@pytest.mark.parametrize("kind", ["bytes", "table", "stream"])
def test_where_nothing_is_renamed_a_write_that_fails_leaves_no_object(bucket, kind):
    store, files = bucket
    write = {
        "bytes": lambda: store.write("t/x", b"12345678"),
        "table": lambda: store.write_table("t/x", pa.table({"x": range(100)})),
        "stream": lambda: streamed(store),
    }[kind]
    files.fails = True
    with pytest.raises(OutputError, match=r"cannot be written any more .* at t/x"):
        write()
    assert not store.exists("t/x") and not files.store
    files.fails = False
    write()
    assert store.exists("t/x") and store.names("t") == ["x"]


def test_where_nothing_is_renamed_a_table_that_cannot_be_written_is_not_begun(bucket):
    store, files = bucket
    with pytest.raises(AttributeError):
        store.write_table("t/x.parquet", "no table")
    bad = pa.table({"x": pa.array([1, 2]), "y": pa.array([None, None], pa.month_day_nano_interval())})
    with pytest.raises(pa.ArrowNotImplementedError):  # found out after the file has begun
        store.write_table("t/y.parquet", bad)
    assert not files.store


def test_an_unwritable_output_is_said_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot be written .* choose another with --output"):
        Store(str(tmp_path / "file" / "out")).prepare()
