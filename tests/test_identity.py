"""Files told by content: what is read, what is read once only, and what is computed again."""

from __future__ import annotations

import os
import zlib

import pytest

from pipeline.engine import session
from pipeline.identity import with_digests
from pipeline.job import Job
from pipeline.ledger import cover, unchanged
from pipeline.manifest import PipelineFile, ProfileFile
from pipeline.media.listing import list_media
from pipeline.media.store import Media
from pipeline.order import Order
from pipeline.plan import Choices
from pipeline.storage import Store
from tests.collections_factory import frame, photo


@pytest.fixture
def folder(tmp_path):
    for i, name in enumerate("abc"):
        photo(tmp_path / "in" / f"{name}.bmp", i)
    return tmp_path


def listed(folder, said=None, *, keep=True):
    say = said.append if said is not None else print
    return with_digests(Store(str(folder / "out")), list_media(str(folder / "in")), keep=keep, say=say)


def swap(path, seed):
    """Other contents under the same size and time."""
    before = path.stat()
    photo(path, seed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_files_are_read_once_and_again_when_something_touched_them(folder):
    said = []
    first = listed(folder, said, keep=False)
    assert len({media.digest for media in first}) == 3 and not (folder / "out").exists(), "looking touches nothing"
    assert listed(folder, said) == first == listed(folder, said)
    assert [line.split(" (")[0] for line in said] == ["Reading 3 files"] * 2
    swap(folder / "in" / "b.bmp", 9)
    os.utime(folder / "in" / "a.bmp", ns=(1, 1))
    after = listed(folder, said)
    assert said[-1].startswith("Reading 2 files") and len(said) == 3
    assert [one.digest == two.digest for one, two in zip(first, after, strict=True)] == [True, False, True]


def test_a_file_that_cannot_be_read_goes_by_its_time(folder):
    (folder / "in" / "b.bmp").unlink()
    (folder / "in" / "b.bmp").symlink_to("nowhere")
    assert [bool(media.digest) for media in listed(folder)] == [True, False, True]


def test_what_counts_as_unchanged():
    def media(size=1, mtime_ns=1, digest=""):
        return Media(media_id="a", path="/a", size=size, mtime_ns=mtime_ns, digest=digest)

    assert unchanged(media(), media()) and not unchanged(media(), None)
    assert not unchanged(media(), media(size=2)) and not unchanged(media(), media(mtime_ns=2))
    assert unchanged(media(digest="x"), media(mtime_ns=2, digest="x"))
    assert not unchanged(media(digest="x"), media(digest="y"))
    assert unchanged(media(), media(digest="x")) and not unchanged(media(digest="x"), media(mtime_ns=2))


def test_a_collection_that_was_moved_is_read_where_it_is_now(folder):
    store = Store(str(folder / "out"))
    before = list_media(str(folder / "in"))
    units = cover(store, before, before, slots=1)
    (folder / "in").rename(folder / "moved")
    now = list_media(str(folder / "moved"))
    again = cover(store, now, now, slots=1)
    assert [unit.name for unit in again] == [unit.name for unit in units]
    assert [media for unit in again for media in unit.media] == now


@pytest.mark.slow
def test_other_contents_are_computed_again_and_new_times_are_not(folder):
    steps = {"crc": {"use": "tests.toys:Checksum"}}
    order = Order(
        input=str(folder / "in"),
        output=str(folder / "out"),
        pipeline=PipelineFile.model_validate({"steps": steps}),
        profile=ProfileFile(),
        profile_name="none",
        choices=Choices(),
        by_content=True,
    )
    with session(None):
        Job(order).run()
        os.utime(folder / "in" / "a.bmp", ns=(1, 1))
        swap(folder / "in" / "b.bmp", 9)
        result = Job(order).run()
        assert not Job(order).run().work.left
    assert (result.work.files.changed, result.work.files.new, result.figures.steps["crc"].rows) == (1, 0, 1)
    store = Store(order.output)
    found = [store.read_table(f"frames/{name}", ["media_id", "crc"]).to_pylist() for name in store.names("frames")]
    rows = {row["media_id"]: row["crc"] for table in found for row in table}
    assert rows == {f"{name}.bmp": zlib.crc32(frame(seed, 0)) for name, seed in {"a": 0, "b": 9, "c": 2}.items()}
