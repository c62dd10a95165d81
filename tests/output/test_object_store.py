"""Objects are complete or absent, on a disk and in a bucket."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
import subprocess
import sys
from urllib.parse import unquote

import pyarrow as pa
import pytest

from framekiln.media.discovery.listing import list_media
from framekiln.media.files import read_bytes
from framekiln.media.media_ids import as_folder, media_id
from framekiln.output.object_store import Store
from tests.support.errors import fails
from tests.support.machine.buckets import empty_bucket


@pytest.fixture(params=["path", "url"])
def store(request, tmp_path):
    return Store(str(tmp_path / "out") if request.param == "path" else f"file://{tmp_path}/out")


def test_written_objects_are_read(store):
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
def test_urls_may_contain_spaces_and_letters_of_any_language(tmp_path, name):
    store = Store(f"file://{tmp_path}/{name}")
    store.prepare()
    store.write("a.bin", b"data")
    assert (tmp_path / unquote(name) / "a.bin").read_bytes() == b"data"
    assert store.url("a.bin") == f"file://{tmp_path}/{name}/a.bin"
    assert store.folder == tmp_path / unquote(name)
    assert read_bytes(list_media(store.root)[0]) == b"data", "the input of that name is the same folder"


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a//b", "./a", "a/.", "..", "a\0b"])
def test_nothing_leaves_the_output(store, tmp_path, path):
    store.prepare()
    for act in (lambda: store.write(path, b"1"), lambda: store.read(path), lambda: store.exists(path)):
        with pytest.raises(ValueError) as error:
            act()
        assert repr(path) in str(error.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "name", ["../../x.jpg", "\x01\n\0" * 80, "ü" * 250, "/".join(["deep" * 30] * 30), "/etc/passwd", "."]
)
def test_files_of_any_name_stay_in_the_output(store, tmp_path, name):
    path = f"images/crop-1/{as_folder(media_id(name))}/00000000.png"
    store.prepare()
    store.write(path, b"1")
    (image,) = (image for image in (tmp_path / "out").rglob("*.png"))
    assert store.read(path) == b"1" and image.is_relative_to(tmp_path / "out" / "images" / "crop-1")
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("root", "url"),
    [
        ("s3://b/what?/?region=eu", "s3://b/what?/frames?region=eu"),
        ("{}/what?/", "{}/what?/frames"),
        ("{0}/out", "{0}/out/frames"),
        ("{0}/a/../out", "{0}/out/frames"),
    ],
)
def test_the_address_of_an_object_can_be_used_as_a_root(tmp_path, root, url):
    assert Store(root.format(tmp_path)).url("frames") == url.format(tmp_path)


def test_bytes_are_stored_as_they_are_under_any_name(store, bucket, tmp_path):
    for target in (store, bucket[0]):
        target.write("t/trace.json.gz", gzip.compress(b"1"))
        assert gzip.decompress(target.read("t/trace.json.gz")) == b"1"
    assert gzip.decompress((tmp_path / "out" / "t" / "trace.json.gz").read_bytes()) == b"1"


def test_a_failed_write_leaves_nothing(store, tmp_path):
    store.prepare()
    with pytest.raises(AttributeError):
        store.write_table("t/x.parquet", "no table")
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == []


@pytest.mark.parametrize("run", ["", "12ab"])
def test_the_content_of_an_object_is_on_the_disk_before_it_has_its_name(store, tmp_path, monkeypatch, run):
    """Else a power loss leaves an empty object."""
    synced, target = {}, tmp_path / "out" / "t" / "x.parquet"

    def sync(handle):
        status = os.fstat(handle)
        synced[status.st_ino] = status.st_size, target.exists()

    monkeypatch.setattr(os, "fsync", sync)
    store.prepare()
    writer = store.of_run(run)
    if run:
        writer.begin()
    writer.write_table("t/x.parquet", pa.table({"x": [1]}))
    status = target.stat()
    assert synced[status.st_ino] == (status.st_size, False)


def test_incomplete_files_of_a_fenced_run_are_deleted(store, tmp_path):
    store.prepare()
    for run in ("1a", "2b"):
        store.of_run(run).begin()
        (tmp_path / "out" / f".tmp-{run}" / "x").write_bytes(b"half")
    (tmp_path / "out" / ".tmp-1a-cafe").mkdir()  # of a fence that was killed
    assert store.folders() == []
    store.fence("1a")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".tmp-2b"]


@pytest.mark.parametrize("before", [False, True], ids=["new", "replaced"])
def test_a_run_fenced_while_it_writes_publishes_nothing_new(store, bucket, before):
    for place in (store, bucket[0]):
        place.prepare()
        asleep = place.of_run("1a")
        asleep.begin()
        if before:
            place.write("t/x", b"theirs")
        with fails("FK-OUTPUT-LOST"), asleep.writing("t/x") as stream:
            stream.write(b"late")
            place.fence("1a")
        assert place.names("t") == (["x"] if before else [])
    if before:
        assert store.read("t/x") == b"theirs"


def test_workers_get_the_same_store(store):
    store.write("a", b"1")
    assert pickle.loads(pickle.dumps(store)).read("a") == b"1"
    assert pickle.loads(pickle.dumps(store.of_run("12ab"))).__reduce__() == store.of_run("12ab").__reduce__()


def test_an_absent_object_raises_gone(store, tmp_path):
    store.prepare()
    with fails("FK-OUTPUT-GONE", "t/x.parquet"):
        store.read_table("t/x.parquet")
    with pytest.raises(FileNotFoundError):
        store.read("x")
    store.remove("x")


def test_a_removed_root_is_not_created_again(store, tmp_path):
    store.prepare()
    running = store.of_run("12ab")
    running.begin()
    running.write("t/x", b"1")
    shutil.rmtree(tmp_path / "out" / "t")
    running.write("t/x", b"1")
    shutil.rmtree(tmp_path / "out")
    with fails("FK-OUTPUT-NOT-WRITABLE", "No such file"):
        running.write("t/x", b"1")
    assert not (tmp_path / "out").exists()


def test_a_file_in_place_of_a_folder_is_reported(store, tmp_path):
    store.prepare()
    store.write("t", b"a file")
    with fails("FK-OUTPUT-NOT-WRITABLE", "at t/x.parquet"):
        store.write_table("t/x.parquet", pa.table({"x": [1]}))


@pytest.fixture
def bucket():
    return empty_bucket()


def streamed(store, *, broken=False):
    with store.writing("t/x") as stream:
        stream.write(b"1234")
        stream.write(b"5678")
        if broken:
            raise KeyError


def test_a_streamed_object_exists_after_a_block_without_error(store, bucket):
    for target in (store, bucket[0]):
        with pytest.raises(KeyError):
            streamed(target, broken=True)
        assert not target.names("t") and not target.exists("t/x")
        streamed(target)
        assert target.read("t/x") == b"12345678" and target.names("t") == ["x"]


@pytest.mark.parametrize("kind", ["bytes", "table", "stream"])
def test_in_a_bucket_a_failed_write_leaves_no_object(bucket, kind):
    store, files = bucket
    write = {
        "bytes": lambda: store.write("t/x", b"12345678"),
        "table": lambda: store.write_table("t/x", pa.table({"x": range(100)})),
        "stream": lambda: streamed(store),
    }[kind]
    files.fails = True
    with fails("FK-OUTPUT-NOT-WRITABLE", "at t/x"):
        write()
    assert not store.exists("t/x") and not files.store
    files.fails = False
    write()
    assert store.exists("t/x") and store.names("t") == ["x"]


def test_in_a_bucket_an_invalid_table_is_not_begun(bucket):
    store, files = bucket
    with pytest.raises(AttributeError):
        store.write_table("t/x.parquet", "no table")
    bad = pa.table({"x": pa.array([1, 2]), "y": pa.array([None, None], pa.month_day_nano_interval())})
    with pytest.raises(pa.ArrowNotImplementedError):  # raised after the file has begun
        store.write_table("t/y.parquet", bad)
    assert not files.store


def test_an_unwritable_output_is_reported(tmp_path):
    (tmp_path / "file").write_text("a file")
    with fails("FK-OUTPUT-NOT-WRITABLE", str(tmp_path / "file" / "out")):
        Store(str(tmp_path / "file" / "out")).prepare()


@pytest.mark.parametrize(
    "root", ["nosuch://bucket/out", "abfss://a@b/out", "az://b/out", "/out\udcff"]
)  # the latter has a byte that is not UTF-8
def test_a_root_that_no_file_system_opens_is_reported(root):
    with fails("FK-OUTPUT-ADDRESS"):
        Store(root)


def test_paths_without_content(store, bucket):
    paths = ["images/a/1.png", "images/a/2.png", "images/a/b/3.png", "images/c/4.png"]
    strange = ["images/../images/a/1.png", "other/1.png", "images", ""]
    for target in (store, bucket[0]):
        assert target.without_content("images", paths) == set(paths)
        for path in (paths[0], paths[2], "other/1.png"):
            target.write(path, b"1")
        target.write(paths[1], b"")
        assert target.without_content("images", [*paths, *strange]) == {paths[1], paths[3], *strange}
        assert target.without_content("images", []) == set()


def test_circles_of_links_are_not_followed(tmp_path):
    store = Store(str(tmp_path / "out"))
    store.write("images/a/1.png", b"1")
    for name in ("one", "two"):
        (tmp_path / "out" / "images" / name).symlink_to("..")
    assert store.without_content("images", ["images/a/1.png", "images/two/x.png"]) == {"images/two/x.png"}


def test_a_folder_that_appears_and_goes_while_it_is_listed_is_no_error(tmp_path):
    """Arrow looks twice: 1 in 250 listings failed beside a process that does nothing else."""
    store, place = Store(str(tmp_path)), str(tmp_path / "columns")
    code = f"import os\nwhile True:\n    os.mkdir({place!r})\n    os.rmdir({place!r})\n"
    with subprocess.Popen([sys.executable, "-c", code]) as other:
        try:
            assert {tuple(store.names("columns")) for _ in range(5000)} == {()}
        finally:
            other.kill()
