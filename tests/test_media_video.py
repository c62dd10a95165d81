from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from pipeline.columns import SOUND_RATE
from tests.material import media
from tests.media_factory import decoded, film, numbered


def numbers(rows: list[dict]) -> list[int]:
    """What the frames themselves say they are."""
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
    made = film(tmp_path / name, frames, codec=codec, pix_fmt="yuv420p")
    rows, failures = decoded(made.rename(tmp_path / "photo.jpg"))
    assert failures == [] and len(rows) == 30
    assert np.abs(np.array(numbers(rows)) - [frame[-1, -1, 0] for frame in frames]).max() <= 8
    assert [row["frame_index"] for row in rows] == list(range(30))
    assert np.allclose(np.diff([row["time_s"] for row in rows]), 0.04, atol=0.002)


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


@pytest.mark.parametrize("colorspace", [1, 5])
def test_colours_follow_the_matrix_of_the_stream(tmp_path: Path, colorspace: int) -> None:
    colour = np.full((64, 64, 3), (200, 60, 30), np.uint8)
    path = film(
        tmp_path / "f.mkv", [colour] * 3, codec="libx264", pix_fmt="yuv444p", colorspace=colorspace, options={"qp": "1"}
    )
    rows, _ = decoded(path)
    assert np.abs(rows[1]["frame"][32, 32].astype(int) - colour[0, 0]).max() <= 4


@pytest.mark.parametrize(("size", "colorspace"), [((720, 1280), 1), ((480, 640), 5)])
def test_a_stream_that_names_no_matrix_is_read_by_its_size(
    tmp_path: Path, size: tuple[int, int], colorspace: int
) -> None:
    colour = av.VideoFrame.from_ndarray(np.full((*size, 3), (200, 60, 30), np.uint8), format="rgb24")
    picture = colour.reformat(format="yuv444p", dst_colorspace=colorspace)
    with av.open(str(tmp_path / "f.mkv"), "w") as out:
        track = out.add_stream("ffv1", rate=25)
        track.height, track.width, track.pix_fmt = *size, "yuv444p"
        unnamed = av.VideoFrame.from_ndarray(picture.to_ndarray(), format="yuv444p")
        out.mux(track.encode(unnamed))
        out.mux(track.encode(None))
    rows, failures = decoded(tmp_path / "f.mkv")
    assert failures == []
    assert np.abs(rows[0]["frame"][9, 9].astype(int) - (200, 60, 30)).max() <= 3


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


def test_sound_without_pictures_is_empty(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mp4"), "w") as out:
        track = out.add_stream("aac", rate=48_000, layout="mono")
        piece = av.AudioFrame.from_ndarray(np.zeros((1, 4096), np.float32), format="fltp", layout="mono")
        piece.sample_rate = 48_000
        out.mux(track.encode(piece))
        out.mux(track.encode(None))
    rows, failures = decoded(tmp_path / "a.mp4", ("frame", "sound"))
    assert rows == [] and [(failure.kind, failure.message) for failure in failures] == [
        ("empty", "there is only sound in it")
    ]


def remuxed(source: Path, path: Path, **options: str) -> bytes:
    with av.open(str(source)) as container, av.open(str(path), "w", options=options) as out:
        track = container.streams.video[0]
        copy = out.add_stream_from_template(track)
        for packet in container.demux(track):
            if packet.dts is not None:
                packet.stream = copy
                out.mux(packet)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("whole.mp4", {"movflags": "+faststart"}),
        ("end.mp4", {}),
        ("parts.mp4", {"movflags": "+frag_keyframe+empty_moov"}),
        ("whole.mkv", {}),
        ("whole.ts", {}),
    ],
)
def test_a_cut_film_keeps_its_whole_frames(tmp_path: Path, name: str, options: dict[str, str]) -> None:
    data = remuxed(media("av/nasa_13013.mp4"), tmp_path / name, **options)
    whole, failures = decoded(tmp_path / name, ("frame_90",))
    assert (len(whole), failures) == (325, [])
    for tenth in range(1, 10):
        (tmp_path / name).write_bytes(data[: len(data) * tenth // 10])
        rows, failures = decoded(tmp_path / name, ("frame_90",))
        assert len(failures) == 1
        assert failures[0].kind == "truncated" or name == "whole.ts"
        assert failures[0].frame_index == (len(rows) or None)
        assert all(np.array_equal(row["frame_90"], whole[row["frame_index"]]["frame_90"]) for row in rows)
        assert [row["frame_index"] for row in rows] == list(range(len(rows)))
    assert len(rows) > 250 or name == "end.mp4"


def test_a_cut_program_stream_keeps_its_whole_frames(tmp_path: Path) -> None:
    """MPEG program streams do not say how long they are; the decoder has to notice."""
    data = media("av/grid/bbaf2n.mpg").read_bytes()
    whole, _ = decoded(media("av/grid/bbaf2n.mpg"))
    for tenth in range(1, 10):
        (tmp_path / "film.mpg").write_bytes(data[: len(data) * tenth // 10])
        rows, failures = decoded(tmp_path / "film.mpg")
        assert [(failure.kind, failure.frame_index) for failure in failures] == [("corrupt", len(rows))]
        assert all(np.array_equal(row["frame"], whole[row["frame_index"]]["frame"]) for row in rows)
        assert abs(len(rows) - 75 * tenth / 10) < 4


def test_a_damaged_film_goes_on_at_the_next_key_frame(tmp_path: Path) -> None:
    """The 20th of 60 packets loses its end: what is predicted from it is left out, the rest keeps numbers and times."""
    rng = np.random.default_rng(0)
    calm = {"sc_threshold": "1000000000"}  # no key frames but each twelfth
    scenes = [np.roll(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8), i, axis=1) for i in range(60)]
    path = film(tmp_path / "film.mkv", scenes, codec="mpeg4", pix_fmt="yuv420p", gop=12, options=calm)
    whole, _ = decoded(path)
    with av.open(str(path)) as container:
        packet = [packet for packet in container.demux(video=0) if packet.size][20]
        body = bytes(packet)
    data = path.read_bytes()
    at = data.index(body)
    path.write_bytes(data[: at + 10] + b"\xff" * (len(body) - 10) + data[at + len(body) :])
    rows, failures = decoded(path)
    assert [row["frame_index"] for row in rows] == [*range(20), *range(24, 60)]
    assert [(failure.kind, failure.frame_index) for failure in failures] == [("corrupt", 20)]
    for row in rows:
        assert np.array_equal(row["frame"], whole[row["frame_index"]]["frame"])
        assert row["time_s"] == whole[row["frame_index"]]["time_s"]
    clip = {row["frame_index"]: row["clip_index"] for row in rows}
    assert clip[19] != clip[24]  # no clip runs across the gap


@pytest.mark.parametrize("number", [0, 186, 210, 240, 276, 312])
def test_a_damaged_h264_film_has_no_made_up_frame(tmp_path: Path, number: int) -> None:
    """Half a packet is noise; with B-frames and a decoder that would rather conceal the damage."""
    data = remuxed(media("av/nasa_13013.mp4"), tmp_path / "film.mp4")
    whole, _ = decoded(tmp_path / "film.mp4", ("frame_90",))
    with av.open(str(tmp_path / "film.mp4")) as container:
        at, size = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size][number]
    noise = np.random.default_rng(number).bytes(size // 2)
    (tmp_path / "film.mp4").write_bytes(data[: at + size // 4] + noise + data[at + size // 4 + len(noise) :])
    rows, failures = decoded(tmp_path / "film.mp4", ("frame_90",))
    assert failures and {failure.kind for failure in failures} == {"corrupt"}
    given = {row["frame_index"] for row in rows}
    assert len(rows) > 100 and all(failure.frame_index not in given for failure in failures)
    began = whole[rows[0]["frame_index"]]["time_s"]
    assert [row["time_s"] for row in rows] == pytest.approx(
        [whole[row["frame_index"]]["time_s"] - began for row in rows]
    )
    assert all(np.array_equal(row["frame_90"], whole[row["frame_index"]]["frame_90"]) for row in rows)


def resampled(path: Path) -> np.ndarray:
    """The whole sound in one go."""
    with av.open(str(path)) as container:
        mixer = av.AudioResampler(format="s16", layout="mono", rate=SOUND_RATE)
        parts = [part for frame in container.decode(audio=0) for part in mixer.resample(frame)]
        return np.concatenate([part.to_ndarray()[0] for part in (*parts, *mixer.resample(None))])


@pytest.mark.parametrize("every_nth", [1, 3])
@pytest.mark.parametrize("name", ["av/grid/bbaf2n.mpg", "av/nasa_13013.mp4", "video/cockatoo.mp4"])
def test_slices_of_sound_are_the_whole_sound(name: str, every_nth: int) -> None:
    rows, failures = decoded(media(name), ("sound",), every_nth=every_nth)
    assert failures == []
    assert all(row["sound"].dtype == np.int16 for row in rows)
    assert np.array_equal(np.concatenate([row["sound"] for row in rows]), resampled(media(name)))
    lengths = [len(row["sound"]) for row in rows[1:-1]]
    assert abs(np.median(lengths) - SOUND_RATE * every_nth / rows[0]["fps"]) <= 1


def click(at_s: float, seconds: float = 2.0) -> np.ndarray:
    sound = np.zeros(round(seconds * 48_000), np.int16)
    start = round(at_s * 48_000)
    sound[start : start + 480] = (20_000 * np.sin(np.arange(480) * 0.3)).astype(np.int16)
    return sound


@pytest.mark.parametrize("starts_s", [0.0, 0.5])
def test_sound_lies_with_the_frame_that_is_seen(tmp_path: Path, starts_s: float) -> None:
    frames = [numbered(i) for i in range(50)]
    path = film(tmp_path / "film.mkv", frames, sound=click(1.0 - starts_s, 2 - starts_s), sound_starts_s=starts_s)
    rows, _ = decoded(path, ("sound",))
    loud = [row["frame_index"] for row in rows if len(row["sound"]) and np.abs(row["sound"]).max() > 5000]
    assert loud == [25]
    assert [len(row["sound"]) for row in rows[:10]] == ([640] * 10 if not starts_s else [0] * 10)


def test_a_hole_in_the_sound_does_not_shift_the_rest(tmp_path: Path) -> None:
    frames = [numbered(i) for i in range(50)]
    path = film(tmp_path / "film.mkv", frames, sound=click(1.5))
    with av.open(str(path)) as container, av.open(str(tmp_path / "hole.mkv"), "w") as out:
        copies = {track.index: out.add_stream_from_template(track) for track in container.streams}
        for packet in container.demux():
            if packet.dts is None or (packet.stream.type == "audio" and 0.4 < packet.pts * packet.time_base < 1.0):
                continue
            packet.stream = copies[packet.stream_index]
            out.mux(packet)
    rows, _ = decoded(tmp_path / "hole.mkv", ("sound",))
    loud = [row["frame_index"] for row in rows if len(row["sound"]) and np.abs(row["sound"]).max() > 5000]
    assert loud in ([37], [37, 38])
    assert sum(len(row["sound"]) for row in rows) == pytest.approx(2 * SOUND_RATE, abs=50)


def test_no_sound_is_null(tmp_path: Path) -> None:
    from PIL import Image as Pil

    film(tmp_path / "film.mkv", [numbered(i) for i in range(3)])
    Pil.fromarray(numbered(1)).save(tmp_path / "photo.png")
    rows, failures = decoded(tmp_path, ("sound", "frame"))
    assert [row["sound"] for row in rows] == [None] * 4 and failures == []


def test_max_frames_cuts_the_sound_too(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(50)], sound=click(1.0))
    rows, _ = decoded(path, ("sound",), max_frames=10)
    assert [len(row["sound"]) for row in rows] == [640] * 10


@pytest.mark.heavy
def test_memory_does_not_grow_with_length(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom tests.memory import peak_mb\n"
        "from tests.media_factory import Unit, DecodeConfig, decode, list_media\n"
        "unit = Unit(name='u', media=tuple(list_media(sys.argv[1])))\n"
        "for p in decode(unit, ['frame', 'sound'], 1, DecodeConfig(packet_bytes=16 << 20)): del p\n"
        "print(peak_mb())\n"
    )
    peaks = []
    for seconds in (4, 24):
        frames = [numbered(i, 360, 640) for i in range(25)] * seconds
        path = film(
            tmp_path / f"{seconds}.mp4",
            frames,
            codec="libx264",
            pix_fmt="yuv420p",
            sound=click(1, seconds),
            sound_codec="aac",
        )
        run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        peaks.append(float(run.stdout))
    assert peaks[1] - peaks[0] < 40, peaks  # MB; 500 more frames are 346 MB of pixels
