"""Films that were joined, and transport streams that were cut: one rising clock, and no lost or wrong frame."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from framekiln.media.video.shown_frames import FrameClock
from tests.media.video.test_odd import coded, number_in
from tests.support.media.media_factory import decoded
from tests.support.media.own_thread import in_own_thread

_PACKET = 188
_QUIET = {"libx264": {"x264-params": "keyint=24"}, "libx265": {"x265-params": "log-level=none"}}


@in_own_thread
def stream(
    path: Path,
    numbers: range,
    *,
    codec: str = "libx264",
    sound: bool = False,
    starts_s: float = 0.0,
    form: str = "mpegts",
    scale: int = 1,
    options: dict[str, str] | None = None,
) -> bytes:
    """Return a film of coded images at 25 a second, with a click of sound in each second."""
    options = options or ({"mpegts_copyts": "1"} if starts_s else {})
    with av.open(str(path), "w", format=form, options=options) as out:
        track = out.add_stream(codec, rate=25, options=_QUIET.get(codec, {}))
        track.width, track.height, track.pix_fmt = 64 * scale, 32 * scale, "yuv420p"
        hearing = out.add_stream("mp2", rate=48_000, layout="mono") if sound else None
        for place, number in enumerate(numbers):
            image = np.kron(coded(number), np.ones((scale, scale, 1), np.uint8))
            av_frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            av_frame.pts = place + round(25 * starts_s)
            out.mux(track.encode(av_frame))
        out.mux(track.encode(None))
        if hearing:
            length = 48_000 * len(numbers) // 25
            samples = np.zeros(length, np.int16)
            samples[::48_000] = samples[1::48_000] = 30_000
            for start in range(0, length, 1152):
                block = np.ascontiguousarray(samples[None, start : start + 1152])
                av_sound = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
                av_sound.sample_rate, av_sound.pts = 48_000, start
                out.mux(hearing.encode(av_sound))
            out.mux(hearing.encode(None))
    return path.read_bytes()


def check(path: Path, expected: list[int]) -> list[dict]:
    rows, failures = decoded(path, ("frame", "sound"))
    assert failures == []
    assert [row["frame_index"] for row in rows] == list(range(len(expected)))
    assert [number_in(row["frame"]) for row in rows] == expected
    times = [row["time_s"] for row in rows]
    assert np.allclose(times, np.arange(len(times)) / 25, atol=1e-4), times
    return rows


@pytest.mark.parametrize("codec", ["libx264", "mpeg2video"])
def test_joined_streams_have_one_clock_and_lose_no_frame(tmp_path: Path, codec: str) -> None:
    parts = [stream(tmp_path / f"{n}.ts", range(40 * n, 40 * n + 37), codec=codec, sound=True) for n in range(3)]
    (tmp_path / "all.ts").write_bytes(b"".join(parts))
    numbers = [number for n in range(3) for number in range(40 * n, 40 * n + 37)]
    rows = check(tmp_path / "all.ts", numbers)
    sound = np.concatenate([row["sound"] for row in rows]).astype(int)
    assert abs(len(sound) / 16_000 - 37 * 3 / 25) < 0.15
    clicks = np.flatnonzero(np.diff(np.abs(sound) > 5000, prepend=0) > 0) / 16_000
    later = [1 + part * 37 / 25 for part in range(3)]  # a click at a join is played before it, or cut
    assert all(np.abs(clicks - time).min() < 0.02 for time in later), clicks
    (tmp_path / "one.ts").write_bytes(parts[1])
    check(tmp_path / "one.ts", list(range(40, 77)))


def test_a_part_that_begins_between_two_tables_continues_the_clock(tmp_path: Path) -> None:
    """Its first frames have times of their own, before its first clock and tables. 200 s are the first part's times."""
    first = stream(tmp_path / "0.ts", range(37), codec="mpeg2video", sound=True, options={"output_ts_offset": "200"})
    later = stream(tmp_path / "1.ts", range(40, 100), codec="mpeg2video", sound=True)
    tables = [at for at in range(0, len(later), _PACKET) if later[at + 1] & 0x1F == later[at + 2] == 0]
    (tmp_path / "all.ts").write_bytes(first + later[tables[1] + 6 * _PACKET :])
    rows, failures = decoded(tmp_path / "all.ts", ("frame", "sound"))
    assert failures == []
    assert len(rows) > 37 + 30
    steps = np.diff([row["time_s"] for row in rows])
    assert 0.039 < steps.min() <= steps.max() < 0.2
    assert sum(len(row["sound"]) for row in rows) < 16_000 * 5


@pytest.mark.parametrize("starts_s", [0.5, 3.0, 500.0, 95_443.0])
def test_a_join_is_one_whatever_the_second_clock_says(tmp_path: Path, starts_s: float) -> None:
    parts = [stream(tmp_path / "a.ts", range(50)), stream(tmp_path / "b.ts", range(50, 90), starts_s=starts_s)]
    (tmp_path / "all.ts").write_bytes(b"".join(parts))
    rows, failures = decoded(tmp_path / "all.ts")
    assert failures == [] and [number_in(row["frame"]) for row in rows] == list(range(90))
    times = np.array([row["time_s"] for row in rows])
    assert (np.diff(times) > 0).all() and np.diff(times).max() < 1.1


@pytest.mark.parametrize(("form", "codec"), [("mpeg", "mpeg1video"), ("vob", "mpeg2video"), ("matroska", "libx264")])
def test_the_clock_of_other_joined_films_rises_too(tmp_path: Path, form: str, codec: str) -> None:
    parts = [stream(tmp_path / "a", range(40 * n, 40 * n + 40), codec=codec, form=form) for n in range(2)]
    (tmp_path / "all").write_bytes(b"".join(parts))
    check(tmp_path / "all", list(range(80)))


_FRAGMENTS = {"movflags": "frag_keyframe+empty_moov"}


@pytest.mark.parametrize(
    ("form", "codec", "films", "read", "options"),
    [
        ("mp4", "libx264", 2, 1, {}),
        ("mp4", "libx264", 2, 1, _FRAGMENTS),  # whose places are in their own file
        ("mp4", "libx264", 2, 1, {"movflags": f"{_FRAGMENTS['movflags']}+default_base_moof"}),
        ("flv", "flv", 3, 1, {}),
        ("asf", "wmv2", 2, 1, {}),
        ("rm", "rv20", 2, 1, {}),
        ("matroska", "libx264", 3, 2, {}),
    ],
)
def test_joined_films_of_which_libav_reads_the_first_are_named(
    tmp_path: Path, form: str, codec: str, films: int, read: int, options: dict[str, str]
) -> None:
    starts, wide = range(0, 30 * films, 30), 2 if form == "rm" else 1
    parts = [
        stream(tmp_path / "a", range(n, n + 30), codec=codec, form=form, scale=wide, options=options) for n in starts
    ]
    (tmp_path / "all").write_bytes(b"".join(parts))
    rows, failures = decoded(tmp_path / "all")
    assert len(rows) == 30 * read
    assert [(failure.kind, failure.frame_index) for failure in failures] == [("unsupported", 30 * read)]
    (tmp_path / "all").write_bytes(b"".join(parts[:read]))
    assert decoded(tmp_path / "all")[1] == []


_FORMS = {"mp4": "libx264", "matroska": "libx264", "avi": "mpeg4", "flv": "flv", "asf": "wmv2", "vob": "mpeg2video"}
_FORMS |= {"mpegts": "libx264", "mpeg": "mpeg1video"}


@pytest.mark.parametrize(
    ("first", "then"),
    [*((form, "mpegts" if form == "mp4" else "mp4") for form in _FORMS), ("matroska", "mpegts"), ("vob", "mpegts")],
)
def test_a_film_after_one_in_another_container_is_named(tmp_path: Path, first: str, then: str) -> None:
    one, two = (
        stream(tmp_path / "a", range(start, start + 30), codec=_FORMS[form], form=form)
        for form, start in ((first, 0), (then, 30))
    )
    (tmp_path / "all").write_bytes(one + two)
    rows, failures = decoded(tmp_path / "all")
    assert [number_in(row["frame"]) for row in rows] == list(range(30))
    assert [(failure.kind, failure.frame_index) for failure in failures] == [("unsupported", 30)]


@pytest.mark.parametrize(
    ("form", "first", "then"),
    [("vob", "mpeg2video", "libx264"), ("vob", "libx264", "mpeg2video"), ("matroska", "libx264", "mpeg2video")],
)
def test_joined_films_of_two_codecs_are_named(tmp_path: Path, form: str, first: str, then: str) -> None:
    parts = [stream(tmp_path / "a", range(50), codec=codec, form=form, scale=4) for codec in (first, then)]
    (tmp_path / "all").write_bytes(b"".join(parts))
    rows, failures = decoded(tmp_path / "all", ("frame_16",))
    assert len(rows) == 50
    assert [(failure.kind, failure.frame_index) for failure in failures] == [("unsupported", 50)]
    (tmp_path / "all").write_bytes(parts[0])
    assert decoded(tmp_path / "all", ("frame_16",))[1] == []


_OTHER_TRACK = {"mpegts_start_pid": "0x300"}


@pytest.mark.parametrize(
    ("codecs", "options"),
    [
        (("libx264", "mpeg2video"), {}),
        (("mpeg2video", "libx264"), {}),
        (("libx265", "libx264"), {}),
        (("libx264", "libx264"), _OTHER_TRACK),
        (("libx264", "mpeg2video"), _OTHER_TRACK),
    ],
)
def test_a_part_with_another_codec_or_track_is_named(
    tmp_path: Path, codecs: tuple[str, str], options: dict[str, str]
) -> None:
    one = stream(tmp_path / "a.ts", range(30), codec=codecs[0], sound=True)
    two = stream(tmp_path / "b.ts", range(30, 60), codec=codecs[1], sound=True, options=options)
    (tmp_path / "all.ts").write_bytes(one + two + two)
    rows, failures = decoded(tmp_path / "all.ts", ("frame", "sound"))
    assert [number_in(row["frame"]) for row in rows] == list(range(30))
    assert [(failure.kind, failure.frame_index) for failure in failures] == [("unsupported", 30)]
    assert "split it" in failures[0].message


@pytest.mark.parametrize(
    ("form", "codec"),
    [("mpegts", "mpeg2video"), ("mpegts", "libx264"), ("mpeg", "mpeg1video"), ("mpeg2video", "mpeg2video")],
)
def test_a_part_of_another_size_costs_no_frame(tmp_path: Path, form: str, codec: str) -> None:
    parts = [stream(tmp_path / "a", range(20 * n, 20 * n + 20), codec=codec, form=form, scale=1 + n) for n in range(2)]
    (tmp_path / "all").write_bytes(b"".join(parts))
    rows, failures = decoded(tmp_path / "all")
    assert failures == [] and [row["frame_index"] for row in rows] == list(range(40))
    assert [number_in(row["frame"][::n, ::n]) for row in rows if (n := row["frame"].shape[0] // 32)] == list(range(40))
    assert [row["frame"].shape[0] for row in rows] == [32] * 20 + [64] * 20


def test_one_wrong_time_shifts_no_other() -> None:
    clock = FrameClock(25.0, Fraction(1, 1000))
    times = [5000, 5040, 1000, 5120, 5160]
    assert [round(clock.time_s(time), 3) for time in times] == [0.0, 0.04, 0.08, 0.12, 0.16]


def test_joined_streams_with_garbage_or_a_time_before_each_packet(tmp_path: Path) -> None:
    one, two = stream(tmp_path / "a.ts", range(30)), stream(tmp_path / "b.ts", range(30, 60))
    (tmp_path / "all.ts").write_bytes(one + bytes(100) + two)
    check(tmp_path / "all.ts", list(range(60)))
    timed = b"".join(bytes(4) + data[at : at + _PACKET] for data in (one, two) for at in range(0, len(data), _PACKET))
    (tmp_path / "all.ts").write_bytes(timed)
    check(tmp_path / "all.ts", list(range(60)))


@pytest.mark.parametrize("codec", ["libx264", "mpeg2video"])
def test_a_stream_cut_between_two_packets_has_no_wrong_frame(tmp_path: Path, codec: str) -> None:
    data = stream(tmp_path / "a.ts", range(12), codec=codec)
    for end in range(8 * _PACKET, len(data), _PACKET):
        (tmp_path / "cut.ts").write_bytes(data[:end])
        rows, _ = decoded(tmp_path / "cut.ts")
        assert all(number_in(row["frame"]) == round(25 * row["time_s"]) for row in rows), end
    rows, failures = decoded(tmp_path / "a.ts")
    assert len(rows) == 12 and failures == []


@in_own_thread
def detailed(path: Path, codec: str) -> bytes:
    """Return a transport stream of six frames, each in many packets."""
    detail = np.kron(np.random.default_rng(0).integers(0, 256, (24, 32, 3)), np.ones((10, 10, 1))).astype(np.uint8)
    with av.open(str(path), "w", format="mpegts") as out:
        track = out.add_stream(codec, rate=25, options={"x265-params": "log-level=none:bframes=0"})
        track.width, track.height, track.pix_fmt = 320, 240, "yuv420p"
        for place in range(6):
            av_frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(np.roll(detail, 7 * place, 1)), format="rgb24")
            av_frame.pts = place
            out.mux(track.encode(av_frame))
        out.mux(track.encode(None))
    return path.read_bytes()


def test_a_decoder_that_fills_in_a_cut_frame_gives_none(tmp_path: Path) -> None:
    data = detailed(tmp_path / "a.ts", "libx265")
    rows, failures = decoded(tmp_path / "a.ts")
    whole = {row["frame_index"]: row["frame"] for row in rows}
    assert len(whole) == 6 and failures == []
    for end in range(8 * _PACKET, len(data), _PACKET):
        (tmp_path / "cut.ts").write_bytes(data[:end])
        rows, _ = decoded(tmp_path / "cut.ts")
        assert all(np.array_equal(row["frame"], whole[row["frame_index"]]) for row in rows), end


@pytest.mark.parametrize("codec", ["libx264", "mpeg2video", "libx265"])
def test_a_part_that_ends_inside_a_frame_spoils_no_other(tmp_path: Path, codec: str) -> None:
    data = detailed(tmp_path / "a.ts", codec)
    whole = [row["frame"] for row in decoded(tmp_path / "a.ts")[0]]
    told = 0
    for cut in range(1, 20, 2):
        (tmp_path / "all.ts").write_bytes(data[: -cut * _PACKET] + data)
        rows, failures = decoded(tmp_path / "all.ts")
        found = [next(i for i, frame in enumerate(whole) if np.array_equal(frame, row["frame"])) for row in rows]
        assert found[-6:] == list(range(6)) and len(found) < 12, cut
        told += "inside a frame" in "".join(failure.message for failure in failures)
    assert told >= 5


def test_a_loss_inside_a_stream_stays_a_loss(tmp_path: Path) -> None:
    data = stream(tmp_path / "a.ts", range(100))
    middle = len(data) // 2 // _PACKET * _PACKET
    (tmp_path / "a.ts").write_bytes(data[:middle] + data[middle + 3 * _PACKET :])
    rows, failures = decoded(tmp_path / "a.ts")
    assert failures and 70 < len(rows) < 100
    assert all(number_in(row["frame"]) == round(25 * row["time_s"]) for row in rows)
