"""Animations give frames with times, equal to those of another decoder, up to the first damage."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image as Pil

from tests.support.media.media_factory import decoded, encoded, numbered
from tests.support.media.photo_factory import save
from tests.support.media.photos import take


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "AVIF"])
def test_animations(tmp_path: Path, kind: str) -> None:
    frames = [Pil.fromarray(numbered(40 * i, 32, 48)) for i in range(5)]
    options = {"lossless": True} if kind == "WEBP" else {"quality": 95} if kind == "AVIF" else {}
    durations = [100, 200, 300, 100, 100]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=durations, **options)
    rows, failures = decoded(save(tmp_path, data), ("frame", "frame_16"))
    assert failures == []
    assert [row["media_type"] for row in rows] == ["animation"] * 5
    assert [row["frame_index"] for row in rows] == list(range(5))
    assert np.allclose([row["time_s"] for row in rows], [0, 0.1, 0.3, 0.6, 0.7], atol=0.011)
    assert rows[0]["fps"] == pytest.approx(5 / 0.8, rel=0.02)
    for row, frame in zip(rows, frames, strict=True):
        assert np.abs(row["frame"].astype(int) - np.asarray(frame)).mean() < (3 if kind == "AVIF" else 1)
        assert row["frame_16"].shape == (16, 24, 3)


def test_a_sequence_of_heif_is_read_as_a_film(tmp_path: Path) -> None:
    frames = [Pil.fromarray(numbered(40 * i, 32, 48)) for i in range(5)]
    data = encoded(frames[0], "AVIF", save_all=True, append_images=frames[1:], duration=200, quality=95)
    (tmp_path / "file").write_bytes(
        data.replace(b"avis", b"msf1", 1).replace(b"avif", b"iso8").replace(b"avis", b"iso8")
    )
    rows, failures = decoded(tmp_path / "file")
    assert failures == [] and [round(row["time_s"], 2) for row in rows] == [0, 0.2, 0.4, 0.6, 0.8]
    assert [abs(int(row["frame"][20, 30, 0]) - 40 * index) < 4 for index, row in enumerate(rows)] == [True] * 5


@pytest.fixture(scope="module", name="pan")
def _pan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GIF of 36 frames of a photo, each of another time and with its own palette."""
    frames = [Pil.fromarray(frame) for frame in take("flower.jpg", 36, 120, 160)]
    path = tmp_path_factory.mktemp("gif") / "pan.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=[40 + 10 * (i % 5) for i in range(36)])
    return path


def test_an_animation_agrees_with_another_decoder(pan: Path) -> None:
    path = pan
    rows, failures = decoded(path)
    with av.open(str(path)) as container:
        reference = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    assert failures == [] and len(rows) == len(reference) == 36
    for row, (time_s, frame) in zip(rows, reference, strict=True):
        assert row["time_s"] == pytest.approx(time_s, abs=0.011)
        assert np.abs(row["frame"].astype(int) - frame).mean() < 1


def test_parts_of_a_gif_are_composed_as_in_browsers(tmp_path: Path) -> None:
    """Rectangles over red with the disposal "background", and over nothing, each with a palette of its own."""

    def part(left: int, colour: tuple[int, int, int], disposal: int) -> bytes:
        side = 24 if disposal == 1 else 8
        still = encoded(Pil.fromarray(np.full((side, side, 3), colour, np.uint8)).quantize(2), "GIF")
        start = still.index(b"\x2c", 13 + 3 * (2 << (still[10] & 7)))
        bits, palette = still[10] & 7, still[13 : 13 + 3 * (2 << (still[10] & 7))]
        size = left.to_bytes(2, "little") + b"\0\0" + 2 * side.to_bytes(2, "little")
        head = b"\x21\xf9\x04" + bytes([disposal << 2, 20, 0, 0, 0]) + b"\x2c" + size + bytes([0x80 | bits])
        return head + palette + still[start + 10 : -1]

    def shown(*parts: bytes) -> list[list[list[int]]]:
        data = b"GIF89a" + 2 * (24).to_bytes(2, "little") + b"\x80\0\0" + bytes(6) + b"".join(parts) + b";"
        rows, failures = decoded(save(tmp_path, data))
        assert failures == []
        return [row["frame"][4, [4, 12, 20]].tolist() for row in rows]

    red, blue, green, grey, white = [200, 0, 0], [0, 0, 200], [0, 200, 0], [9, 9, 9], [255, 255, 255]
    assert shown(part(0, (200, 0, 0), 1), part(0, (0, 0, 200), 2), part(8, (0, 200, 0), 2), part(16, (9, 9, 9), 2)) == [
        [red, red, red],
        [blue, red, red],
        [white, green, red],
        [white, white, grey],
    ]
    for disposal, after in ((0, blue), (2, white), (3, white)):
        parts = [part(0, (0, 0, 200), disposal), part(8, (0, 200, 0), 3), part(16, (9, 9, 9), 0)]
        assert shown(parts[0]) == [[blue, white, white]]
        assert shown(*parts) == [[blue, white, white], [after, green, white], [after, white, grey]]


@pytest.mark.parametrize("blend", [0, 1])
def test_a_half_transparent_part_over_nothing_keeps_its_weight(tmp_path: Path, blend: int) -> None:
    levels = [(255, 0), (60, 128), (120, 255)]
    frames = [Pil.fromarray(np.full((8, 8, 4), (level,) * 3 + (alpha,), np.uint8)) for level, alpha in levels]
    data = encoded(frames[0], "PNG", save_all=True, append_images=frames[1:], duration=50, blend=blend)
    assert [row["frame"][4, 4, 0] for row in decoded(save(tmp_path, data))[0]] == [255, 157, 120]


def test_truncated_animation_keeps_its_first_frames(pan: Path, tmp_path: Path) -> None:
    data = pan.read_bytes()
    whole, _ = decoded(save(tmp_path, data))
    rows, failures = decoded(save(tmp_path, data[: len(data) // 2]))
    assert 5 < len(rows) < 36
    assert all(np.array_equal(row["frame"], other["frame"]) for row, other in zip(rows, whole, strict=False))
    assert [(failure.kind, failure.frame_index) for failure in failures] == [("truncated", len(rows))]


def test_default_image_of_an_apng_is_no_frame(tmp_path: Path) -> None:
    frames = [Pil.fromarray(numbered(40 * i)) for i in range(4)]
    data = encoded(frames[0], "PNG", save_all=True, default_image=True, append_images=frames[1:], duration=50)
    rows, _ = decoded(save(tmp_path, data))
    assert [row["frame"][-1, -1, 0] for row in rows] == [40, 80, 120]
