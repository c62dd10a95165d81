"""Videos of any container, size, rotation and matrix give frames with number, time and pixels."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from tests.support.media.material import media
from tests.support.media.media_factory import decoded, film, numbered
from tests.support.media.photos import take


def numbers(rows: list[dict]) -> list[int]:
    """Return the numbers drawn in the frames."""
    return [int(row["frame"][-1, -1, 0]) for row in rows]


def test_frames_times_and_sizes(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(50)])
    rows, failures = decoded(path, ("frame", "frame_8"))
    assert failures == []
    assert numbers(rows) == [row["frame_index"] for row in rows] == list(range(50))
    assert np.allclose([row["time_s"] for row in rows], np.arange(50) / 25, atol=0.001)
    assert {(row["media_type"], row["fps"], row["height"], row["width"]) for row in rows} == {("video", 25.0, 16, 24)}
    assert all(np.array_equal(row["frame"], numbered(row["frame_index"])) for row in rows)
    assert rows[0]["frame_8"].shape == (8, 12, 3)
    assert rows[0]["frame_8"][0, 0].tolist() == [255, 0, 0]
    alone, _ = decoded(path, ("frame_8",))
    assert all(np.array_equal(row["frame_8"], other["frame_8"]) for row, other in zip(alone, rows, strict=True))


@pytest.mark.parametrize(
    "name", ["film.mp4", "film.mov", "film.mkv", "film.avi", "film.ts", "film.mpg", "film.flv", "film.webm"]
)
def test_containers_whatever_the_name(tmp_path: Path, name: str) -> None:
    codec = {"flv": "flv", "avi": "mpeg4", "mpg": "mpeg1video", "webm": "libvpx-vp9"}.get(name[5:], "libx264")
    frames = [np.clip(numbered(5 * i, 64, 96), 20, 230) for i in range(30)]
    path = film(tmp_path / name, frames, codec=codec, pix_fmt="yuv420p")
    rows, failures = decoded(path.rename(tmp_path / "photo.jpg"))
    assert failures == [] and len(rows) == 30
    assert np.abs(np.array(numbers(rows)) - [frame[-1, -1, 0] for frame in frames]).max() <= 8
    assert [row["frame_index"] for row in rows] == list(range(30))
    assert np.allclose(np.diff([row["time_s"] for row in rows]), 0.04, atol=0.002)


@pytest.mark.parametrize(
    ("codec", "pixels"), [("libsvtav1", "yuv420p"), ("libx265", "yuv420p"), ("libx264", "yuv420p10le")]
)
def test_other_codecs(tmp_path: Path, codec: str, pixels: str) -> None:
    frames = take("china.jpg", 12, 90, 160)
    rows, failures = decoded(film(tmp_path / "film.mkv", list(frames), codec=codec, pix_fmt=pixels))
    assert failures == [] and len(rows) == 12
    assert max(np.abs(row["frame"] - frame.astype(int)).mean() for row, frame in zip(rows, frames, strict=True)) < 8


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "count", "size", "fps"),
    [
        ("video/av1_video.mkv", 125, (360, 640), 25),
        ("video/h264_10bits.mp4", 30, (200, 200), 30),
        ("video/h265_video.mp4", 10, (128, 128), 10),
        ("av/grid/bbaf2n.mpg", 75, (288, 360), 25),
        ("av/nasa_13013.mp4", 325, (180, 320), 25),
    ],
)
def test_real_films(name: str, count: int, size: tuple[int, int], fps: float) -> None:
    rows, failures = decoded(media(name), ("frame_90",))
    assert failures == [] and len(rows) == count
    assert {(row["height"], row["width"]) for row in rows} == {size}
    assert rows[0]["fps"] == fps
    assert np.allclose([row["time_s"] for row in rows], np.arange(count) / fps, atol=0.002)
    assert all(row["frame_90"].std() > 5 for row in rows[5:100])


@pytest.mark.parametrize("size", [(17, 23), (64, 33), (1, 1)])
def test_odd_sizes(tmp_path: Path, size: tuple[int, int]) -> None:
    frames = [numbered(i, *size) for i in range(3)]
    rows, failures = decoded(film(tmp_path / "film.mkv", frames), ("frame", "frame_4"))
    assert failures == []
    assert all(np.array_equal(row["frame"], frame) for row, frame in zip(rows, frames, strict=True))


MATRICES = {
    1: (1, 0, 0, 0, 1, 0),
    2: (-1, 0, 0, 0, 1, 0),
    3: (-1, 0, 0, 0, -1, 0),
    4: (1, 0, 0, 0, -1, 0),
    5: (0, 1, 0, 1, 0, 0),
    6: (0, 1, 0, -1, 0, 0),
    7: (0, -1, 0, -1, 0, 0),
    8: (0, -1, 0, 1, 0, 0),
}


@pytest.mark.parametrize("orientation", MATRICES)
def test_display_matrix(tmp_path: Path, orientation: int) -> None:
    """The corner that is red as stored must be where EXIF's table has the 0th row and column."""
    matrix = (*(65536 * value for value in MATRICES[orientation]), 0, 0, 1 << 30)
    stored = numbered(90, 32, 64)
    path = film(
        tmp_path / "film.mp4", [stored] * 3, codec="libx264", pix_fmt="yuv420p", matrix=matrix, options={"qp": "1"}
    )
    rows, failures = decoded(path, ("frame", "frame_16"))
    assert failures == []
    corners = {1: (0, 0), 2: (0, -1), 3: (-1, -1), 4: (-1, 0), 5: (0, 0), 6: (0, -1), 7: (-1, -1), 8: (-1, 0)}
    y, x = corners[orientation]
    for column in ("frame", "frame_16"):
        image = rows[0][column].astype(int)
        redness = {place: image[place][0] - image[place][2] for place in ((0, 0), (0, -1), (-1, 0), (-1, -1))}
        assert max(redness, key=lambda place: redness[place]) == (y, x)
    assert (rows[0]["height"], rows[0]["width"]) == ((64, 32) if orientation > 4 else (32, 64))


@pytest.mark.parametrize("pix_fmt", ["yuv444p", "yuv420p", "yuvj420p"])
@pytest.mark.parametrize("colorspace", [1, 4, 5, 9])
def test_colours_follow_the_matrix_of_the_stream(tmp_path: Path, colorspace: int, pix_fmt: str) -> None:
    colour = np.full((66, 62, 3), (200, 60, 30), np.uint8)
    path = film(
        tmp_path / "f.mkv", [colour] * 3, codec="libx264", pix_fmt=pix_fmt, colorspace=colorspace, options={"qp": "1"}
    )
    rows, _ = decoded(path, ("frame", "frame_16", "frame_20"))
    for column, shape in (("frame", (66, 62)), ("frame_20", (33, 31)), ("frame_16", (17, 16))):
        image = rows[1][column].astype(int)
        assert image.shape[:2] == shape
        assert np.abs(image - colour[0, 0]).max() <= 4, column


@pytest.mark.parametrize(("size", "colorspace"), [((720, 1280), 1), ((480, 640), 5)])
def test_a_stream_without_a_matrix_is_read_by_its_size(tmp_path: Path, size: tuple[int, int], colorspace: int) -> None:
    colour = av.VideoFrame.from_ndarray(np.full((*size, 3), (200, 60, 30), np.uint8), format="rgb24")
    av_frame = colour.reformat(format="yuv444p", dst_colorspace=colorspace)
    with av.open(str(tmp_path / "f.mkv"), "w") as out:
        track = out.add_stream("ffv1", rate=25)
        track.height, track.width, track.pix_fmt = *size, "yuv444p"
        unnamed = av.VideoFrame.from_ndarray(av_frame.to_ndarray(), format="yuv444p")
        out.mux(track.encode(unnamed))
        out.mux(track.encode(None))
    rows, failures = decoded(tmp_path / "f.mkv")
    assert failures == []
    assert np.abs(rows[0]["frame"][9, 9].astype(int) - (200, 60, 30)).max() <= 3


# Requested frames


def test_every_nth_and_max_frames(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(50)])
    rows, _ = decoded(path, every_nth=7)
    assert numbers(rows) == [row["frame_index"] for row in rows] == list(range(0, 50, 7))
    rows, failures = decoded(path, every_nth=7, max_frames=3)
    assert numbers(rows) == [0, 7, 14] and failures == []


def test_fast_mode(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mkv", [numbered(i, 720, 1280) for i in range(2)])
    rows, _ = decoded(path, ("frame", "frame_224"), fast_mode=True)
    assert rows[0]["frame"].shape == rows[0]["frame_224"].shape == (360, 640, 3)
    assert (rows[0]["height"], rows[0]["width"]) == (360, 640)


def test_too_large_before_decoding(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mkv", [numbered(0, 100, 200)] * 2)
    assert decoded(path, max_pixels=20_000)[1] == []
    rows, failures = decoded(path, max_pixels=19_999)
    assert rows == [] and [failure.kind for failure in failures] == ["too_large"]


def test_sound_without_video_is_empty(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mp4"), "w") as out:
        track = out.add_stream("aac", rate=48_000, layout="mono")
        piece = av.AudioFrame.from_ndarray(np.zeros((1, 4096), np.float32), format="fltp", layout="mono")
        piece.sample_rate = 48_000
        out.mux(track.encode(piece))
        out.mux(track.encode(None))
    rows, failures = decoded(tmp_path / "a.mp4", ("frame", "sound"))
    assert rows == [] and [failure.kind for failure in failures] == ["empty"]
