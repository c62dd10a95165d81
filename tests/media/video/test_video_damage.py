"""A truncated or damaged video keeps its intact frames with their numbers and times, and invents none."""

from __future__ import annotations

import io
import re
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from framekiln.media.damaged import boxes
from tests.media.video.test_odd import seen, write
from tests.support.media.films import FRAMES, made_film
from tests.support.media.media_factory import decoded, film, numbered
from tests.support.media.remux import remuxed


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("whole.mp4", {"movflags": "+faststart"}),
        ("end.mp4", {}),
        ("parts.mp4", {"movflags": "+frag_keyframe+empty_moov"}),
        ("whole.mkv", {}),
    ],
)
def test_a_truncated_film_keeps_its_intact_frames(tmp_path: Path, name: str, options: dict[str, str]) -> None:
    remuxed(made_film("film.mp4"), tmp_path / name, sound=False, **options)
    kept, kinds = truncated(tmp_path / name, FRAMES)
    assert kinds == {"truncated"}
    assert kept > 0.75 * FRAMES or name == "end.mp4"


def test_a_film_that_ends_between_two_fragments_or_inside_a_head_is_truncated(tmp_path: Path) -> None:
    path = remuxed(made_film("film.mp4"), tmp_path / "parts.mp4", sound=False, movflags="+frag_keyframe+empty_moov")
    data = path.read_bytes()
    fragment = data.rindex(b"moof", 0, len(data) // 2) - 4
    after = fragment + int.from_bytes(data[fragment : fragment + 4], "big")
    for end in (fragment + 4, fragment + 7, after, after + 4, after + 7, after + 8):
        path.write_bytes(data[:end])
        rows, failures = decoded(path, ("frame_90",))
        assert [failure.kind for failure in failures] == ["truncated"], end - after
        assert 0 < len(rows) < FRAMES
    path.write_bytes(data + bytes(4))  # as QuickTime ends a list
    assert decoded(path, ("frame_90",))[1] == []


@pytest.mark.parametrize(("parts", "kind"), [(("moof", "mdat"), "unsupported"), (("mdat",), "truncated")])
def test_a_film_without_its_index_is_named(tmp_path: Path, parts: tuple[str, ...], kind: str) -> None:
    """A segment of a stream alone, and a recording that was not ended."""
    path = remuxed(made_film("film.mp4"), tmp_path / "film.mp4", sound=False, movflags="+frag_keyframe+empty_moov")
    data = path.read_bytes()
    found = {name.decode(): data[start:stop] for name, start, stop in boxes(io.BytesIO(data), len(data))}
    path.write_bytes(b"".join(found[name] for name in ("ftyp", *parts)))
    rows, failures = decoded(path)
    assert rows == [] and [failure.kind for failure in failures] == [kind]


def test_a_film_whose_last_box_states_too_much_is_whole(tmp_path: Path) -> None:
    film(
        tmp_path / "film.mp4",
        [numbered(8 * i) for i in range(30)],
        codec="libx264",
        pix_fmt="yuv420p",
        container={"movflags": "faststart"},
    )
    data = bytearray((tmp_path / "film.mp4").read_bytes())
    at = data.index(b"mdat") - 4
    data[at : at + 4] = (len(data) + 5000).to_bytes(4, "big")
    (tmp_path / "film.mp4").write_bytes(bytes(data))
    rows, failures = decoded(tmp_path / "film.mp4")
    assert (len(rows), failures) == (30, [])
    (tmp_path / "film.mp4").write_bytes(bytes(data[:-1]))
    rows, failures = decoded(tmp_path / "film.mp4")
    assert len(rows) < 30 and [failure.kind for failure in failures] == ["truncated"]


def test_a_truncated_transport_stream_keeps_its_intact_frames(tmp_path: Path) -> None:
    """A transport stream does not state its length; a cut shows where it divides a packet of 188 bytes."""
    remuxed(made_film("film.mp4"), tmp_path / "film.ts", sound=False)
    assert truncated(tmp_path / "film.ts", FRAMES, packet=188)[0] > 0.75 * FRAMES


def truncated(path: Path, count: int, packet: int = 1) -> tuple[int, set[str]]:
    """Check a film cut at each tenth, amid a packet of so many bytes.

    Returns:
        How many frames the longest has, and the kinds of failures.
    """
    data, kinds = path.read_bytes(), set()
    whole, failures = decoded(path, ("frame_90",))
    assert (len(whole), failures) == (count, [])
    for tenth in range(1, 10):
        path.write_bytes(data[: len(data) * tenth // 10 // packet * packet + packet // 2])
        rows, failures = decoded(path, ("frame_90",))
        assert len(failures) == 1
        assert failures[0].frame_index == (len(rows) or None)
        assert all(np.array_equal(row["frame_90"], whole[row["frame_index"]]["frame_90"]) for row in rows)
        assert [row["frame_index"] for row in rows] == list(range(len(rows)))
        kinds.add(failures[0].kind)
    return len(rows), kinds


def test_a_truncated_program_stream_keeps_its_intact_frames(tmp_path: Path) -> None:
    """MPEG program streams do not state their length; the decoder must detect the end."""
    path = tmp_path / "film.mpg"
    data = remuxed(made_film("film.mpg"), path, sound=False).read_bytes()
    whole, _ = decoded(path)
    with av.open(str(path)) as container:
        ends = np.cumsum([packet.size for packet in container.demux(video=0)])
    for size in (len(data) * tenth // 10 for tenth in range(1, 10)):
        path.write_bytes(data[:size])
        rows, failures = decoded(path)
        assert [(failure.kind, failure.frame_index) for failure in failures] == [("truncated", len(rows) or None)]
        assert all(np.array_equal(row["frame"], whole[row["frame_index"]]["frame"]) for row in rows)
        assert abs(len(rows) - (ends * len(data) / ends[-1] <= size).sum()) < 4


def test_a_damaged_film_continues_at_the_next_key_frame(tmp_path: Path) -> None:
    """The 20th of 60 packets loses its end: frames predicted from it are lost, all others keep numbers and times."""
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
    assert clip[19] != clip[24]  # no clip continues across the gap


@pytest.mark.parametrize("number", [0, 24, 60, 100, 120, 150])
def test_a_damaged_h264_film_has_no_invented_frame(tmp_path: Path, number: int) -> None:
    """Half a packet is noise, in a film with B-frames, for a decoder that conceals damage by default."""
    data = remuxed(made_film("film.mp4"), tmp_path / "film.mp4", sound=False).read_bytes()
    whole, _ = decoded(tmp_path / "film.mp4", ("frame_90",))
    with av.open(str(tmp_path / "film.mp4")) as container:
        at, size = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size][number]
    noise = np.random.default_rng(number).bytes(size // 2)
    (tmp_path / "film.mp4").write_bytes(data[: at + size // 4] + noise + data[at + size // 4 + len(noise) :])
    rows, failures = decoded(tmp_path / "film.mp4", ("frame_90",))
    assert failures and {failure.kind for failure in failures} == {"corrupt"}
    indices = {row["frame_index"] for row in rows}
    assert len(rows) > 100 and all(failure.frame_index not in indices for failure in failures)
    start_s = whole[rows[0]["frame_index"]]["time_s"]
    assert [row["time_s"] for row in rows] == pytest.approx(
        [whole[row["frame_index"]]["time_s"] - start_s for row in rows]
    )
    assert all(np.array_equal(row["frame_90"], whole[row["frame_index"]]["frame_90"]) for row in rows)


@pytest.mark.parametrize(("slicecrc", "lost"), [("1", range(20, 24)), ("0", range(0))])
def test_a_flipped_bit_in_ffv1_costs_the_frames_up_to_the_next_key_frame(
    tmp_path: Path, slicecrc: str, lost: range
) -> None:
    """Check what libav conceals: it gives a frame with other pixels. Without checksums, this cannot be known."""
    frames = list(np.random.default_rng(0).integers(0, 256, (36, 48, 64, 3), dtype=np.uint8))
    path = film(tmp_path / "film.mkv", frames, options={"level": "3", "slices": "4", "slicecrc": slicecrc})
    intact, failures = decoded(path, ("frame_90",))
    assert (len(intact), failures) == (36, [])
    data = bytearray(path.read_bytes())
    packet = _packet(path, 20)
    data[data.index(packet) + len(packet) // 2] ^= 1
    path.write_bytes(data)
    rows, failures = decoded(path, ("frame_90",))
    assert [row["frame_index"] for row in rows] == [number for number in range(36) if number not in lost]
    assert [(failure.kind, failure.frame_index) for failure in failures] == [("corrupt", first) for first in lost[:1]]


@pytest.fixture(scope="module")
def moving() -> list[np.ndarray]:
    noise = np.random.default_rng(0).integers(0, 255, (64, 96, 3), dtype=np.uint8)
    return [np.roll(noise, 2 * i, axis=1) for i in range(32)]


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("film.flv", "libx264"),
        ("film.flv", "flv"),
        ("film.ogg", "libvpx"),
        ("film.mkv", "libx264"),
        ("film.webm", "libvpx"),
        ("film.avi", "mpeg4"),
        ("film.mxf", "mpeg2video"),
    ],
)
def test_a_hole_in_a_film_has_a_line_and_no_wrong_frame(
    tmp_path: Path, name: str, codec: str, moving: list[np.ndarray]
) -> None:
    """Bytes are missing in the middle: libav reads on, and the end is there."""
    options = {"deadline": "realtime", "cpu-used": "8"} if codec == "libvpx" else {}
    path = film(tmp_path / name, moving, codec=codec, pix_fmt="yuv420p", gop=8, options=options)
    data, (whole, failures) = path.read_bytes(), decoded(path)
    assert failures == []
    for tenth in (3, 5, 6):
        hole = len(data) * tenth // 10
        path.write_bytes(data[:hole] + data[hole + 600 :])
        rows, failures = decoded(path)
        assert {failure.kind for failure in failures} == {"corrupt"}, tenth
        assert 8 < len(rows) < 32
        places = [[i for i, one in enumerate(whole) if np.array_equal(one["frame"], row["frame"])] for row in rows]
        assert all(places) and places == sorted(places)


def test_a_live_matroska_without_its_end_is_truncated(tmp_path: Path, moving: list[np.ndarray]) -> None:
    """It states no length."""
    path = film(tmp_path / "film.mkv", moving, codec="libx264", pix_fmt="yuv420p", gop=8, container={"live": "1"})
    data, (whole, failures) = path.read_bytes(), decoded(path)
    assert (len(whole), failures) == (32, [])
    path.write_bytes(data[: len(data) * 2 // 3])
    rows, failures = decoded(path)
    assert 8 < len(rows) < 32 and [failure.kind for failure in failures] == ["truncated"]
    assert all(np.array_equal(row["frame"], whole[row["frame_index"]]["frame"]) for row in rows)


def _packet(path: Path, number: int) -> bytes:
    with av.open(str(path)) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.size][number]


@pytest.mark.parametrize("length", [b"\0" * 4, b"\xff" * 4])
def test_an_avi_of_unknown_length_that_lacks_its_end_is_truncated(tmp_path: Path, length: bytes) -> None:
    """As an interrupted recording and a cut stream are: damage in the middle has other repairs."""
    data = write(tmp_path / "film.avi", range(40), base=Fraction(1, 25), codec="mpeg4").read_bytes()
    frames = [match.start() for match in re.finditer(b"00dc", data[: data.index(b"idx1")])]
    (tmp_path / "film.avi").write_bytes((data[:4] + length + data[8:])[: frames[30] + 12])  # inside frame 30
    rows, failures = decoded(tmp_path / "film.avi")
    assert seen(rows) == list(range(len(rows)))
    assert len(rows) >= 28
    assert [failure.kind for failure in failures] == ["truncated"]
