"""Packets and clips: for any cuts of a unit, every frame appears once, in order, followed by its halo."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pil

from framekiln.contract.columns import views, wrap
from framekiln.contract.packet import Packet, packet_schema
from tests.support.media.media_factory import decoded, film, numbered, packets_of, rows_of
from tests.support.media.photos import take


@cache
def collection(frames: int, gop: int) -> Path:
    """A film, a photo, another film and an empty file; every frame shows its number."""
    folder = Path(mkdtemp())
    film(folder / "a.mkv", [numbered(i) for i in range(frames)], gop=gop)
    Pil.fromarray(numbered(200)).save(folder / "b.png")
    film(folder / "c.mkv", [numbered(100 + i) for i in range(frames // 2 + 1)], gop=gop)
    (folder / "d.jpg").write_bytes(b"")
    return folder


@pytest.mark.parametrize("others", [0, 3])
def test_packets_tell_how_much_of_a_film_and_of_a_unit_is_decoded(others, tmp_path):
    film(tmp_path / "a.mkv", [numbered(i) for i in range(200)], gop=5)
    for number in range(others):
        Pil.fromarray(numbered(200)).save(tmp_path / f"b{number}.png")
    packets = packets_of(tmp_path, packet_rows=10, clip_frames=5)
    told, rows = (
        np.cumsum([each(packet) for packet in packets]) for each in (lambda p: p.share, lambda p: p.rows.num_rows)
    )
    assert told[-1] == pytest.approx(1) and min(packet.share for packet in packets) >= 0
    assert np.abs(told - rows / rows[-1])[:-1].max() < 0.15  # packets are read some frames ahead


@settings(max_examples=60, deadline=None)
@given(
    frames=st.sampled_from([1, 2, 23]),
    gop=st.sampled_from([1, 5, 50]),
    clip_frames=st.integers(1, 9),
    halo=st.integers(0, 4),
    every_nth=st.integers(1, 3),
    packet_rows=st.integers(1, 30),
    packet_frames=st.integers(1, 30),
)
def test_cutting(
    frames: int, gop: int, clip_frames: int, halo: int, every_nth: int, packet_rows: int, packet_frames: int
) -> None:
    config = {
        "clip_frames": clip_frames,
        "every_nth": every_nth,
        "packet_rows": packet_rows,
        "packet_bytes": packet_frames * 16 * 24 * 3,
    }
    packets = packets_of(collection(frames, gop), halo=halo, **config)
    rows = [rows_of(packet) for packet in packets]
    own = [row for part in rows for row in part if not row["halo"]]
    expected = [
        *(("a.mkv", i) for i in range(0, frames, every_nth)),
        ("b.png", 0),
        *(("c.mkv", i) for i in range(0, frames // 2 + 1, every_nth)),
    ]
    assert [(row["media_id"], row["frame_index"]) for row in own] == expected  # every row once, in order
    for row in (row for part in rows for row in part):
        base = {"a.mkv": 0, "b.png": 200, "c.mkv": 100}[row["media_id"]]
        assert np.array_equal(row["frame"], numbered(base + row["frame_index"]))
    check_packets(packets, rows, len(expected), packet_rows, packet_frames)
    check_clips(rows, halo, clip_frames, packet_frames)
    assert [failure.kind for packet in packets for failure in packet.failures] == ["empty"]


def check_packets(
    packets: list[Packet], rows: list[list[dict]], total: int, packet_rows: int, packet_frames: int
) -> None:
    assert [packet.start for packet in packets] == [0, *(packet.stop for packet in packets[:-1])]
    assert (packets[-1].start, packets[-1].stop, packets[-1].rows.num_rows) == (total, total, 0)
    for packet, part in zip(packets, rows, strict=True):
        assert packet.rows.schema.equals(packet_schema(["frame"]))
        assert sum(not row["halo"] for row in part) == packet.stop - packet.start
        clips = {(row["media_id"], row["clip_index"]) for row in part if not row["halo"]}
        assert packet.stop - packet.start <= packet_rows or len(clips) == 1
        assert len(part) <= packet_frames or len(clips) == 1
    assert all(packet.start < packet.stop for packet in packets[:-1])


def check_clips(rows: list[list[dict]], halo: int, clip_frames: int, packet_frames: int) -> None:
    clips: dict[tuple[str, int], list[dict]] = {}
    homes: dict[tuple[str, int], set[int]] = {}
    for number, part in enumerate(rows):
        key = ("", -1)
        for row in part:
            assert (row["clip_index"] == -1) == row["halo"]
            key = key if row["halo"] else (row["media_id"], row["clip_index"])
            clips.setdefault(key, []).append(row)
            homes.setdefault(key, set()).add(number)
    assert all(len(home) == 1 for home in homes.values())  # no clip spans two packets
    longest = max(1, min(clip_frames, packet_frames // 2))
    order = [row for clip in clips.values() for row in clip if not row["halo"]]
    for (name, index), clip in clips.items():
        own = [row for row in clip if not row["halo"]]
        assert clip[: len(own)] == own and 1 <= len(own) <= longest
        assert index == 0 or (name, index - 1) in clips
        after = [row for row in order if row["media_id"] == name and row["frame_index"] > own[-1]["frame_index"]]
        assert [row["frame_index"] for row in clip[len(own) :]] == [row["frame_index"] for row in after[:halo]]
        assert len(own) * 2 >= longest or not after  # only the last clip of a file may be shorter than half


@pytest.mark.parametrize("columns", [(), ("frame_8",), ("frame", "frame_8"), ("sound",)])
def test_clips_depend_on_the_file_only(columns: tuple[str, ...]) -> None:
    def clips(columns: tuple[str, ...]) -> list[tuple[str, int, int]]:
        rows, _ = decoded(collection(23, 5), columns, clip_frames=8, packet_bytes=100_000)
        return [(row["media_id"], row["frame_index"], row["clip_index"]) for row in rows]

    assert clips(columns) == clips(("frame",))


def test_clips_begin_at_key_frames_where_they_can() -> None:
    """Key frames at 0, 5, 10, ...: a clip of at most 8 frames ends before a key frame after its 4th frame."""
    rows, _ = decoded(collection(23, 5), clip_frames=8)
    pairs = pairwise(rows)
    starts = [row["frame_index"] for before, row in pairs if row["clip_index"] > before["clip_index"]]
    assert starts == [5, 10, 15, 20, 5, 10]


def test_large_frames_make_short_clips(tmp_path: Path) -> None:
    """Full-size pixels of a clip take at most half a packet, even if only small ones are requested."""
    path = film(tmp_path / "film.mp4", take("china.jpg", 60, 540, 960), codec="libx264", pix_fmt="yuv420p", gop=250)
    rows, _ = decoded(path, ("frame_128",), max_frames=60, packet_bytes=20 * 960 * 540 * 3)
    assert np.bincount([row["clip_index"] for row in rows]).tolist() == [10] * 6


def test_a_packet_survives_sealing() -> None:
    packet = packets_of(collection(23, 5), ("frame", "sound", "frame_8"), halo=2)[0]
    unsealed = Packet.open(packet.seal())
    assert unsealed.rows.cast(packet.rows.schema).equals(packet.rows)
    assert (unsealed.start, unsealed.stop) == (packet.start, packet.stop)
    assert pa.types.is_struct(unsealed.rows["frame"].type)


def test_failures_are_part_of_the_next_packet(tmp_path: Path) -> None:
    for name, data in {"a.jpg": b"", "b.png": None, "c.jpg": b"text"}.items():
        (tmp_path / name).write_bytes(data or b"")
    Pil.fromarray(numbered(1)).save(tmp_path / "b.png")
    packets = packets_of(tmp_path)
    assert [(packet.start, packet.stop) for packet in packets] == [(0, 1), (1, 1)]
    kinds = [[(failure.media_id, failure.kind) for failure in packet.failures] for packet in packets]
    assert kinds == [[("a.jpg", "empty"), ("c.jpg", "unsupported")], []]


def test_a_listed_file_that_is_missing_is_one_failure(tmp_path: Path) -> None:
    Pil.fromarray(numbered(1)).save(tmp_path / "b.png")
    (tmp_path / "list").write_text("b.png\ngone.png\n")
    rows, failures = decoded(tmp_path / "list")
    assert len(rows) == 1
    assert [(failure.media_id, failure.kind) for failure in failures] == [("gone.png", "unreadable")]
    assert "No such file" in failures[0].message


def test_wrapped_images_are_views_of_themselves_and_small_ones_are_copied():
    large, small = np.full((300, 300, 3), 7, np.uint8), np.full((2, 3, 3), 9, np.uint8)
    column = wrap([small, small, large, large[::-1], small])
    assert [len(chunk) for chunk in column.chunks] == [2, 1, 1, 1]
    for image, source in zip(views(column), (small, small, large, large[::-1], small), strict=True):
        assert np.array_equal(image, source) and not image.flags.writeable
    assert np.shares_memory(views(column)[2], large) and not np.shares_memory(views(column)[0], small)
    assert not views(wrap([]))
