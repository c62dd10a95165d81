"""Content digests: which files are read, which only once, and which are computed again."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace

import pytest

from framekiln.job import Job
from framekiln.media.discovery.listing import list_media
from framekiln.media.files import MediaFile
from framekiln.output.content_hash import with_digests
from framekiln.output.object_store import Store
from framekiln.output.unit_table import is_unchanged
from tests.support.media.collections_factory import frame, photo
from tests.support.runs.engine_factory import request
from tests.support.runs.units import ensure_units


@pytest.fixture
def folder(tmp_path):
    for i, name in enumerate("abc"):
        photo(tmp_path / "in" / f"{name}.bmp", i)
    return tmp_path


def list_with_digests(folder, messages=None, *, keep=True):
    on_message = messages.append if messages is not None else print
    return with_digests(Store(str(folder / "out")), list_media(str(folder / "in")), keep=keep, on_message=on_message)


def swap(path, seed):
    """Replace the content, keeping size and time."""
    before = path.stat()
    photo(path, seed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_files_are_read_once_and_again_after_a_change(folder):
    messages = []
    first = list_with_digests(folder, messages, keep=False)
    assert len({media.digest for media in first}) == 3 and not (folder / "out").exists(), "a listing writes nothing"
    assert list_with_digests(folder, messages) == first == list_with_digests(folder, messages)
    assert [line.split(" (")[0] for line in messages] == ["Reading 3 files"] * 2
    swap(folder / "in" / "b.bmp", 9)
    os.utime(folder / "in" / "a.bmp", ns=(1, 1))
    after = list_with_digests(folder, messages)
    assert messages[-1].startswith("Reading 2 files") and len(messages) == 3
    assert [old.digest == new.digest for old, new in zip(first, after, strict=True)] == [True, False, True]


def test_an_unreadable_file_has_no_digest(folder):
    (folder / "in" / "b.bmp").unlink()
    (folder / "in" / "b.bmp").symlink_to("nowhere")
    assert [bool(media.digest) for media in list_with_digests(folder)] == [True, False, True]


def test_files_are_compared_by_digest_or_else_by_size_and_time():
    def media(size=1, mtime_ns=1, digest=""):
        return MediaFile(media_id="a", path="/a", size=size, mtime_ns=mtime_ns, digest=digest)

    assert is_unchanged(media(), media()) and not is_unchanged(media(), None)
    assert not is_unchanged(media(), media(size=2)) and not is_unchanged(media(), media(mtime_ns=2))
    assert is_unchanged(media(digest="x"), media(mtime_ns=2, digest="x"))
    assert not is_unchanged(media(digest="x"), media(digest="y"))
    assert is_unchanged(media(), media(digest="x")) and not is_unchanged(media(digest="x"), media(mtime_ns=2))


def test_a_moved_collection_is_read_from_its_new_place(folder):
    store = Store(str(folder / "out"))
    before = list_media(str(folder / "in"))
    units = ensure_units(store, before, before, slots=1)
    (folder / "in").rename(folder / "moved")
    now = list_media(str(folder / "moved"))
    moved = ensure_units(store, now, now, slots=1)
    assert [unit.name for unit in moved] == [unit.name for unit in units]
    assert [media for unit in moved for media in unit.media] == now


@pytest.mark.slow
@pytest.mark.heavy
def test_changed_contents_are_computed_again_and_changed_times_are_not(folder, serial):
    steps = {"crc": {"use": "tests.toys:Checksum"}}
    order = replace(request(folder / "in", folder / "out", {"steps": steps}), by_content=True)
    Job(order).run()
    os.utime(folder / "in" / "a.bmp", ns=(1, 1))
    swap(folder / "in" / "b.bmp", 9)
    result = Job(order).run()
    assert not Job(order).run().work.left
    assert (result.work.files.changed, result.work.files.new, result.figures.steps["crc"].rows) == (1, 0, 1)
    store = Store(order.output)
    tables = [store.read_table(f"frames/{name}", ["media_id", "crc"]).to_pylist() for name in store.names("frames")]
    rows = {row["media_id"]: row["crc"] for table in tables for row in table}
    assert rows == {f"{name}.bmp": zlib.crc32(frame(seed, 0)) for name, seed in {"a": 0, "b": 9, "c": 2}.items()}
