"""Photos of a bucket are read ahead of decoding, each once; the rows are those of the same files on a disk."""

from __future__ import annotations

import io
import threading
from dataclasses import replace

import numpy as np
import pytest

from framekiln.contract.errors import MediaError, Reason
from framekiln.media import block_cache, read_ahead
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.files import open_media
from framekiln.media.packets.decode import decode
from framekiln.media.units import Unit
from tests.support.machine.object_server import Objects, served
from tests.support.media.collections_factory import photo
from tests.support.media.media_factory import click, film

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


def test_a_film_with_sound_is_read_once(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(block_cache, "_BLOCK", 1 << 18)  # the bytes of one read of libav
    pictures = list(np.random.default_rng(0).integers(0, 255, (12, 128, 192, 3), np.uint8))
    (tmp_path / "film").mkdir()
    film(tmp_path / "film" / "a.mkv", pictures, sound=click(0.2, 0.5))
    content = (tmp_path / "film" / "a.mkv").read_bytes()
    bucket.files["film/a.mkv"] = content
    columns = ("frame", "sound")
    expected = [
        p.rows.drop_columns(["media_id"]) for p in decode(unit_of(str(tmp_path / "film")), columns, 0, DecodeConfig())
    ]
    unit = unit_of(bucket.url.format("film"))
    bucket.sent = 0
    found = [p.rows.drop_columns(["media_id"]) for p in decode(unit, columns, 0, DecodeConfig())]
    assert found == expected
    assert bucket.sent == len(content) > 3 << 18


def test_blocks_are_those_of_the_file_at_its_time(bucket, monkeypatch):
    monkeypatch.setattr(block_cache, "_BLOCK", 16)
    monkeypatch.setattr(block_cache, "_KEPT", 3)
    content = bytes(range(250))
    bucket.files["x/a.bin"] = content
    (media,) = unit_of(bucket.url.format("x")).media
    with open_media(media) as stream:
        for start, count in ((0, 1), (10, 12), (16, 5), (240, 99), (3, 31), (100, 100), (249, 1), (250, 4)):
            stream.seek(start)
            assert stream.read(count) == content[start : start + count]
        assert len(block_cache._blocks) <= 3
    bucket.files["x/a.bin"] = content[::-1]
    with open_media(replace(media, mtime_ns=1)) as stream:
        assert stream.read(4) == content[::-1][:4]


@pytest.mark.parametrize("start", [0, 90])
@pytest.mark.parametrize("block", [16, 1 << 20])
def test_a_file_that_has_become_shorter_is_unreadable(start, block, monkeypatch):
    monkeypatch.setattr(block_cache, "_BLOCK", block)
    stream = block_cache.CachedStream(io.BytesIO(bytes(80)), 100, f"shorter {start} {block}")
    stream.seek(start)
    with pytest.raises(MediaError) as error:
        stream.read(100)
    assert error.value.reason is Reason.UNREADABLE


def test_no_more_is_kept_than_fits(bucket, monkeypatch):
    unit = unit_of(bucket.url.format("in"))
    photos = [media for media in unit.media if media.media_id.endswith(".png")]
    monkeypatch.setattr(read_ahead, "_MOST_BYTES", photos[0].size + photos[1].size)
    ahead = read_ahead.ReadAhead(unit.media)
    contents = [ahead.take(media).read() for media in photos]
    assert contents == [bucket.files[f"in/{media.media_id}"] for media in photos]
    assert ahead.take(photos[0]) is None
