"""Films as cameras, recorders and editors write them; each frame shows its number in blocks that survive a codec."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from framekiln.media.video.shown_frames import DisplayMatrix
from tests.support.media.media_factory import decoded
from tests.support.media.remux import remuxed

_SIDE = 16  # px of a block
_BITS = 8


def coded(number: int) -> np.ndarray:
    """Return an image (32 64 3) with the number's bits as bright and dark blocks, the lowest first."""
    bits = np.array([number >> bit & 1 for bit in range(_BITS)], np.uint8).reshape(2, 4)
    return np.repeat(np.kron(bits * 200 + 28, np.ones((_SIDE, _SIDE), np.uint8))[..., None], 3, axis=2)


def number_in(image: np.ndarray) -> int:
    """Return the number in an image of `coded`; fails on a mixture of two numbers."""
    means = image[: 2 * _SIDE, : 4 * _SIDE].mean(axis=2).reshape(2, _SIDE, 4, _SIDE).mean(axis=(1, 3)).ravel()
    assert ((means < 90) | (means > 165)).all(), means
    return int(sum(1 << bit for bit, mean in enumerate(means) if mean > 128))


def write(
    path: Path,
    times: Sequence[int],
    *,
    base: Fraction = Fraction(1, 1000),
    codec: str = "libx264",
    options: dict[str, str] | None = None,
    movflags: str | None = None,
) -> Path:
    """Write a film of `coded` images at the given times, in units of `base`."""
    with av.open(str(path), "w", options={"movflags": movflags} if movflags else {}) as out:
        track = out.add_stream(codec, rate=25, options=options or {})
        track.width, track.height, track.pix_fmt = 4 * _SIDE, 2 * _SIDE, "yuv420p"
        track.time_base = track.codec_context.time_base = base
        for number, time in enumerate(times):
            out.mux(track.encode(_av_frame(number, time, base)))
        out.mux(track.encode(None))
    return path


def _av_frame(number: int, time: int, base: Fraction) -> av.VideoFrame:
    av_frame = av.VideoFrame.from_ndarray(coded(number), format="rgb24")
    av_frame.pts, av_frame.time_base = time, base
    return av_frame


def seen(rows: list[dict]) -> list[int]:
    return [number_in(row["frame"]) for row in rows]


B_FRAMES = {"bf": "3", "g": "12", "b-adapt": "0", "sc_threshold": "0"}
IRREGULAR = np.cumsum([0, *np.random.default_rng(0).choice([7, 20, 33, 34, 120, 1000], 79)]).tolist()


@pytest.mark.parametrize("name", ["film.mp4", "film.mkv", "film.mov"])
@pytest.mark.parametrize("options", [{"bf": "0"}, B_FRAMES], ids=["no B-frames", "B-frames"])
def test_irregular_times_are_those_of_the_file(tmp_path: Path, name: str, options: dict[str, str]) -> None:
    rows, failures = decoded(write(tmp_path / name, IRREGULAR, options=options))
    assert failures == []
    assert seen(rows) == [row["frame_index"] for row in rows] == list(range(80))
    assert [row["time_s"] for row in rows] == pytest.approx([time / 1000 for time in IRREGULAR], abs=1e-6)
    if name != "film.mkv":  # Matroska's header states a rate of its own, here the writer's nominal one
        assert rows[0]["fps"] == pytest.approx(79_000 / IRREGULAR[-1], rel=0.03)


LATE = [(name, first) for name in ("film.mp4", "film.mkv", "film.ts", "film.avi") for first in (0, 40, 5000)]


@pytest.mark.parametrize(("name", "first_time"), LATE[:-1])  # AVI cannot start late
@pytest.mark.parametrize("options", [B_FRAMES, B_FRAMES | {"x264opts": "open-gop=1"}], ids=["closed", "open"])
def test_b_frames_come_in_display_order(tmp_path: Path, name: str, options: dict[str, str], first_time: int) -> None:
    times = [first_time + 40 * i for i in range(60)]
    rows, failures = decoded(write(tmp_path / name, times, options=options))
    assert failures == []
    assert seen(rows) == [row["frame_index"] for row in rows] == list(range(60))
    assert [row["time_s"] for row in rows] == pytest.approx([i / 25 for i in range(60)], abs=2e-5)


def test_an_avi_that_was_written_to_a_pipe_is_whole(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "film.avi", range(20), base=Fraction(1, 25), codec="mpeg4").read_bytes())
    data[4:8] = b"\xff" * 4  # its length, unknown
    (tmp_path / "film.avi").write_bytes(data)
    rows, failures = decoded(tmp_path / "film.avi")
    assert (seen(rows), failures) == (list(range(20)), [])


@pytest.mark.parametrize("name", ["cut.mp4", "cut.mkv", "cut.ts"])
@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_a_copy_cut_inside_open_gops(tmp_path: Path, name: str, codec: str) -> None:
    """B-frames before the first key frame refer to missing frames: they are not shown, and nothing else is lost."""
    options = {
        "libx264": B_FRAMES | {"x264opts": "open-gop=1"},
        "libx265": {"x265-params": "open-gop=1:keyint=12:min-keyint=12:scenecut=0:bframes=3:b-adapt=0:log-level=none"},
    }[codec]
    whole = write(
        tmp_path / f"whole{'.ts' if name == 'cut.ts' else '.mkv'}",
        [40 * i for i in range(60)],
        codec=codec,
        options=options,
    )
    with av.open(str(whole)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    first = [i for i, packet in enumerate(packets) if packet.is_keyframe][2]
    leading = sum(packet.pts < packets[first].pts for packet in packets[first:])
    assert leading
    rows, failures = decoded(remuxed(whole, tmp_path / name, lambda packet, i: packet if i >= first else None))
    begin = min(packet.pts for packet in packets)
    start = round((packets[first].pts - begin) * packets[first].time_base * 25)
    assert failures == []
    assert seen(rows) == list(range(start, 60))
    assert [row["frame_index"] for row in rows] == list(range(60 - start))
    assert [row["time_s"] for row in rows] == pytest.approx([i / 25 for i in range(60 - start)], abs=2e-5)


@pytest.mark.parametrize("name", ["film.mkv", "film.ts"])
def test_damage_in_open_gops_costs_one_gop(tmp_path: Path, name: str) -> None:
    """From the next key frame on, only its leading B-frames are lost; before it, a delayed frame may be lost too."""
    path = write(tmp_path / name, [40 * i for i in range(60)], options=B_FRAMES | {"x264opts": "open-gop=1"})
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    order = sorted(packet.pts for packet in packets)
    keys = [order.index(packet.pts) for packet in packets if packet.is_keyframe]
    hurt = next(i for i, packet in enumerate(packets) if order.index(packet.pts) == keys[1] + 4)

    def spoilt(packet: av.Packet, number: int) -> av.Packet:
        if number != hurt:
            return packet
        data = bytes(packet)
        broken = av.Packet(data[: len(data) // 3].ljust(len(data), b"\xff"))
        broken.pts, broken.dts, broken.time_base = packet.pts, packet.dts, packet.time_base
        return broken

    rows, failures = decoded(remuxed(path, tmp_path / f"hurt{path.suffix}", spoilt))
    assert {failure.kind for failure in failures} == {"corrupt"}
    assert seen(rows) == [row["frame_index"] for row in rows]
    assert [row["time_s"] for row in rows] == pytest.approx([row["frame_index"] / 25 for row in rows], abs=2e-5)
    assert set(range(keys[1] - 1)) | set(range(keys[2], 60)) <= set(seen(rows))


NEED_KEY = [("mpeg4", "film.avi"), ("flv", "film.flv"), ("libvpx-vp9", "film.mkv"), ("libx265", "film.ts")]


@pytest.mark.parametrize(("codec", "name"), [*NEED_KEY, ("libx264", "film.mkv"), ("mpeg2video", "film.mpg")])
def test_a_film_that_begins_inside_a_group_is_not_damaged(tmp_path: Path, codec: str, name: str) -> None:
    """Frames before the first key frame are left out, in silence; numbers and times begin at it."""
    options = {"g": "12"} | ({"x265-params": "keyint=12:log-level=none"} if codec == "libx265" else {"bf": "0"})
    whole = write(tmp_path / f"whole{Path(name).suffix}", range(30), base=Fraction(1, 25), codec=codec, options=options)
    cut = remuxed(whole, tmp_path / name, lambda packet, number: packet if number >= 5 else None)
    rows, failures = decoded(cut)
    assert failures == []
    numbers = seen(rows)
    assert numbers == list(range(numbers[0], 30)) and 5 <= numbers[0] <= 12
    assert [row["frame_index"] for row in rows] == list(range(len(rows)))
    assert [row["time_s"] for row in rows] == pytest.approx([i / 25 for i in range(len(rows))], abs=2e-3)


@pytest.mark.parametrize("name", ["film.avi", "film.mov"])
def test_raw_pixels_in_an_unknown_format_are_unsupported(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [0, 40], codec="rawvideo")
    data = path.read_bytes()
    if name == "film.avi":
        at = data.index(b"strf") + 22
        path.write_bytes(data[: at - 4] + b"\0\0" + (48).to_bytes(2, "little") + bytes(4) + data[at + 4 :])
    rows, failures = decoded(path)
    assert rows == [] and [failure.kind for failure in failures] == ["unsupported"]


def tracks(
    path: Path, numbers: Sequence[int], *, marked: int | None = None, cover: int | None = None, still: int | None = None
) -> Path:
    """Write a track of three equal frames for each number, of one for `still`.

    `marked` is the default track, `cover` is cover art.
    """
    with av.open(str(path), "w") as out:
        entries = []
        for index, number in enumerate(numbers):
            track = out.add_stream("mjpeg" if index == cover else "libx264", rate=25)
            track.width, track.height = 4 * _SIDE, 2 * _SIDE
            track.pix_fmt = "yuvj420p" if index == cover else "yuv420p"
            kind = av.stream.Disposition
            track.disposition = kind.attached_pic if index == cover else kind.default if index == marked else kind(0)
            entries.append((track, number, 1 if index in (cover, still) else 3))
        for track, number, count in entries:
            for time in range(count):
                out.mux(track.encode(_av_frame(number, time, Fraction(1, 25))))
            out.mux(track.encode(None))
    return path


@pytest.mark.parametrize("name", ["film.mp4", "film.mkv"])
@pytest.mark.parametrize(("marked", "expected"), [(0, 11), (1, 22)])
def test_of_two_video_tracks_the_default_one(tmp_path: Path, name: str, marked: int, expected: int) -> None:
    rows, failures = decoded(tracks(tmp_path / name, [11, 22], marked=marked))
    assert failures == [] and seen(rows) == [expected] * 3


def test_of_two_unmarked_tracks_the_first(tmp_path: Path) -> None:
    rows, failures = decoded(tracks(tmp_path / "film.ts", [11, 22]))
    assert failures == [] and seen(rows) == [11] * 3


def test_a_still_beside_a_film_is_no_video(tmp_path: Path) -> None:
    rows, failures = decoded(tracks(tmp_path / "film.mp4", [11, 22], marked=0, still=0))
    assert failures == [] and seen(rows) == [22] * 3


def test_cover_art_is_no_video(tmp_path: Path) -> None:
    rows, failures = decoded(tracks(tmp_path / "film.mp4", [11, 22], cover=0))
    assert failures == [] and seen(rows) == [22] * 3
    rows, failures = decoded(tracks(tmp_path / "cover.mp4", [11], cover=0))
    assert rows == [] and [failure.kind for failure in failures] == ["empty"]


@pytest.mark.parametrize("options", [{"bf": "0"}, B_FRAMES], ids=["no B-frames", "B-frames"])
def test_an_edit_list_hides_leading_frames(tmp_path: Path, options: dict[str, str]) -> None:
    """A cut at 0.4 s inside a GOP: packets from its key frame on have times before 0 and are not shown."""
    whole = write(tmp_path / "whole.mp4", [40 * i for i in range(60)], options=options | {"g": "24"})

    def earlier(packet: av.Packet, _: int) -> av.Packet:
        shift = round(Fraction(2, 5) / packet.time_base)
        packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
        return packet

    remuxed(whole, tmp_path / "cut.mp4", earlier)
    with av.open(str(tmp_path / "cut.mp4")) as container:
        assert sum(packet.is_discard for packet in container.demux(video=0)) >= 8  # the edit list works
    rows, failures = decoded(tmp_path / "cut.mp4")
    assert failures == []
    assert seen(rows) == list(range(10, 60))
    assert [row["frame_index"] for row in rows] == list(range(50))
    assert [row["time_s"] for row in rows] == pytest.approx([i / 25 for i in range(50)], abs=2e-5)


@pytest.mark.parametrize("name", ["film.mp4", "film.mkv"])
def test_a_title_that_is_not_utf_8_costs_nothing(tmp_path, name):
    path = write(tmp_path / "plain.mp4", [0, 40, 80])
    tagged = tmp_path / name
    with av.open(str(path)) as source, av.open(str(tagged), "w") as out:
        out.metadata["title"] = "TITLE"
        track = out.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = track
                out.mux(packet)
    data = tagged.read_bytes()
    assert b"TITLE" in data
    tagged.write_bytes(data.replace(b"TITLE", b"T\xff\xfe\x80E"))
    rows, failures = decoded(tagged)
    assert not failures and seen(rows) == [0, 1, 2]


class UnknownData:
    """A frame with side data that PyAV has no name for."""

    def __init__(self, rotation: int) -> None:
        self.rotation = rotation

    @property
    def side_data(self) -> object:
        raise ValueError("29 is not a valid Type")


@pytest.mark.parametrize(("rotation", "orientation"), [(0, 1), (-90, 6), (90, 8), (180, 3), (-180, 3), (45, 1)])
def test_side_data_without_a_name_hides_no_orientation(rotation: int, orientation: int) -> None:
    assert DisplayMatrix().orientation(UnknownData(rotation)) == orientation


@pytest.mark.parametrize("cut", [1, 47, 100, 187])
def test_a_transport_stream_that_begins_inside_a_packet(tmp_path: Path, cut: int) -> None:
    whole = write(tmp_path / "whole.ts", range(0, 2000, 40), base=Fraction(1, 1000))
    (tmp_path / "cut.ts").write_bytes(b"\x5a" * (188 - cut) + whole.read_bytes())
    data, packets = whole.read_bytes(), range(0, whole.stat().st_size, 188)
    timed = b"".join(bytes(4) + data[at : at + 188] for at in packets)
    summed = b"".join(data[at : at + 188] + bytes(16) for at in packets)
    for name, content in (
        ("192.mts", timed),
        ("192-cut.mts", timed[cut:]),
        ("204.ts", summed),
        ("204-cut.ts", summed[cut:]),
    ):
        (tmp_path / name).write_bytes(content)
    for name in ("cut.ts", "192.mts", "192-cut.mts", "204.ts", "204-cut.ts"):
        rows, failures = decoded(tmp_path / name, ("frame",))
        assert failures == [] and [number_in(row["frame"]) for row in rows][-40:] == list(range(10, 50)), name
        assert len(rows) == 50 or "-cut" in name
