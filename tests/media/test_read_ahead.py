"""Photos of a bucket are read ahead of decoding, each once; the rows are those of the same files on a disk."""

from __future__ import annotations

import threading

import pytest

from framekiln.media import read_ahead
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode
from framekiln.media.units import Unit
from tests.support.machine.object_server import Objects, served
from tests.support.media.collections_factory import photo

COUNT, AT_ONCE = 24, 8


@pytest.fixture
def folder(tmp_path):
    for number in range(COUNT):
        photo(tmp_path / "in" / f"{number:02}.png", number)
    (tmp_path / "in" / "note.txt").write_text("no photo")
    return tmp_path / "in"


@pytest.fixture
def bucket(folder):
    files = {f"in/{path.name}": path.read_bytes() for path in folder.iterdir()}
    with served(Objects(files=files)) as objects:
        yield objects


def unit_of(source):
    return Unit(name="u", media=tuple(list_media(source)))


def rows(source):
    unit = unit_of(source)
    packets = list(decode(unit, ("frame",), 0, DecodeConfig()))
    failures = {failure.media_id: failure.kind for packet in packets for failure in packet.failures}
    return [row for packet in packets for row in packet.rows.to_pylist()], failures


def test_rows_are_those_of_a_folder_and_each_photo_is_read_once(folder, bucket):
    expected, passed_over = rows(str(folder))
    bucket.requests.clear()
    found, same = rows(bucket.url.format("in"))
    assert found == expected and same == passed_over == {"note.txt": "passed_over"}
    photos = [(method, key) for method, key in bucket.requests if key.endswith(".png")]
    assert sorted(photos) == sorted((method, f"in/{n:02}.png") for n in range(COUNT) for method in ("HEAD", "GET"))


def test_several_photos_are_read_at_a_time(bucket):
    together = threading.Barrier(AT_ONCE)
    first = iter(range(AT_ONCE))

    def wait(method, key):
        if method == "GET" and key.endswith(".png") and next(first, None) is not None:
            together.wait(timeout=20)  # broken if photos are read one by one: then the answer is no photo

    bucket.before = wait
    found, _ = rows(bucket.url.format("in"))
    assert len(found) == COUNT and not together.broken


def test_a_photo_that_is_gone_is_an_error_of_its_own(bucket):
    unit = unit_of(bucket.url.format("in"))
    del bucket.files["in/05.png"]
    packets = list(decode(unit, ("frame",), 0, DecodeConfig()))
    assert sum(packet.rows.num_rows for packet in packets) == COUNT - 1
    assert {f.media_id: f.kind for p in packets for f in p.failures}["05.png"] == "unreadable"


def test_no_more_is_kept_than_fits(bucket, monkeypatch):
    unit = unit_of(bucket.url.format("in"))
    photos = [media for media in unit.media if media.media_id.endswith(".png")]
    monkeypatch.setattr(read_ahead, "_MOST_BYTES", photos[0].size + photos[1].size)
    ahead = read_ahead.ReadAhead(unit.media)
    contents = [ahead.take(media).read() for media in photos]
    assert contents == [bucket.files[f"in/{media.media_id}"] for media in photos]
    assert ahead.take(photos[0]) is None
