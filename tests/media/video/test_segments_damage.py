"""A damaged segment loses only its own frames, keeps the numbers of others, and is reported once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.media.media_factory import rows_of
from tests.support.media.segmented_films import FRAMES, SMALL, by_task, damage, places, same, sample_film


def test_an_unreadable_file_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(b"\0\0\0\x18ftypisom" + bytes(1000))
    parts = by_task(tmp_path / "film.mp4", ("frame",), tasks=8)
    failures = [failure for part in parts for packet in part for failure in packet.failures]
    assert len(parts) > 5 and len(failures) == 1 and failures[0].frame_index is None


@pytest.mark.parametrize(("first", "last"), [(0, 3), (33, 36), (59, 59), (30, 59), (28, 31)])
def test_a_damaged_segment_keeps_the_numbers_of_others(tmp_path: Path, first: int, last: int) -> None:
    path, columns = sample_film("b-frames"), ("frame", "sound")
    config = {"tasks": 4, "packet_rows": 8, "clip_frames": 5, **SMALL}
    sound = by_task(path, columns, **config)
    broken = by_task(damage(path, tmp_path / "film.mov", first, last), columns, **config)
    assert [(part[0].start, part[-1].stop) for part in broken] == [(part[0].start, part[-1].stop) for part in sound]
    for part, other in zip(broken, sound, strict=True):
        failures = [failure for packet in part for failure in packet.failures]
        rows = [row for packet in part for row in rows_of(packet)]
        before = {row["frame_index"]: row for packet in other for row in rows_of(packet)}
        if not set(range(first, last + 1)) & before.keys():
            assert not failures
            assert all(packet.rows.equals(intact.rows) for packet, intact in zip(part, other, strict=True))
            continue
        assert {failure.kind for failure in failures} == {"corrupt"}
        assert {failure.frame_index for failure in failures} <= before.keys() - {row["frame_index"] for row in rows}
        assert len(rows) < len(before)
        assert [packet.start for packet in part[1:]] == [packet.stop for packet in part[:-1]]
        clips = [row["clip_index"] for row in rows]
        assert clips == sorted(clips) and set(clips) <= set(range(part[0].start, part[-1].stop))
        for row in rows:
            about = ("frame", "time_s", "frame_index", "height")
            assert all(same(row[name], before[row["frame_index"]][name]) for name in about)
    spans = [(packet.start, packet.stop) for part in broken for packet in part]
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])] and spans[-1] == (FRAMES, FRAMES)


def test_an_index_with_more_frames_than_the_film_is_reported(tmp_path: Path) -> None:
    """The 35th packet of 120 is replaced by one without a frame, which is no error to the decoder."""
    data = bytearray(sample_film("no reordering").read_bytes())
    place, size = places(sample_film("no reordering"))[35]
    empty = b"\x00\x00\x01\xb6" + int("0101000011000000", 2).to_bytes(2, "big")  # vop_coded is 0
    data[place : place + size] = empty + bytes(size - len(empty))
    (tmp_path / "film.mov").write_bytes(data)
    parts = by_task(tmp_path / "film.mov", ("frame",), tasks=4, **SMALL)
    rows = [row for part in parts for packet in part for row in rows_of(packet)]
    failures = [failure for part in parts for packet in part for failure in packet.failures]
    numbers = [row["frame_index"] for row in rows]
    assert len(set(numbers)) == len(numbers) == FRAMES - 1
    assert [failure.kind for failure in failures] == ["corrupt"] and failures[0].frame_index not in numbers
    assert parts[-1][-1].stop == FRAMES
