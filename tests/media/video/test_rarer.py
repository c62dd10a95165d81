"""Rarer containers, streams without one or without their beginning, and packets that show nothing."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.file_types import Kind
from framekiln.media.video.container import decode_errors, has_content
from tests.media.video.test_odd import coded, seen, write
from tests.support.media.media_factory import decoded, film, numbered

STREAMS = {"ivf": "libvpx", "yuv4mpegpipe": "wrapped_avframe", "mxf": "mpeg2video", "rm": "rv20", "mjpeg": "mjpeg"}
STREAMS |= {"h264": "libx264", "hevc": "libx265", "m4v": "mpeg4", "mov": "tiff"}
JOINED = {"ivf": 1, "yuv4mpegpipe": 1, "mxf": 2, "h264": 2, "mjpeg": 2}  # times that each frame is read


@pytest.mark.parametrize("form", STREAMS)
def test_streams_without_a_container_and_rarer_containers(tmp_path: Path, form: str) -> None:
    options = {"x265-params": "log-level=none"} if form == "hevc" else {}
    with av.open(str(tmp_path / f"film.{form}"), "w", format=form) as out:
        track = out.add_stream(STREAMS[form], rate=25, options=options)
        track.width, track.height = 64, 32
        track.pix_fmt = "yuvj420p" if form == "mjpeg" else "yuv420p"
        for number in range(20):
            av_frame = av.VideoFrame.from_ndarray(coded(number), format="rgb24").reformat(format=track.pix_fmt)
            av_frame.pts, av_frame.time_base = number, Fraction(1, 25)
            out.mux(track.encode(av_frame))
        out.mux(track.encode(None))
    rows, failures = decoded(tmp_path / f"film.{form}")
    assert failures == [] and seen(rows) == list(range(20))
    assert [row["time_s"] for row in rows] == pytest.approx([number / 25 for number in range(20)], abs=2e-3)
    data, path = (tmp_path / f"film.{form}").read_bytes(), tmp_path / f"part.{form}"
    if form not in ("h264", "hevc", "mov"):  # decoders that cannot tell of each cut; an index at the end
        path.write_bytes(data[: len(data) * 4 // 5 - 7])
        part, failures = decoded(path)
        assert [(failure.kind, failure.frame_index) for failure in failures] == [("truncated", len(part))]
        assert seen(part) == list(range(len(part))) and len(part) > 5
    if form == "yuv4mpegpipe":  # damage inside is no missing end
        path.write_bytes(data[: len(data) // 2] + data[len(data) // 2 :].replace(b"FRAME", b"frame", 1))
        assert [failure.kind for failure in decoded(path)[1]] == ["corrupt"]
    if form in JOINED:
        path.write_bytes(2 * data)
        rows, failures = decoded(path)
        assert [failure.kind for failure in failures] == ([] if JOINED[form] == 2 else ["unsupported"])
        assert seen(rows) == JOINED[form] * list(range(20))
        assert [row["time_s"] for row in rows] == pytest.approx([place / 25 for place in range(len(rows))], abs=2e-3)


@pytest.mark.parametrize(
    ("form", "codec", "size"), [("obu", "libsvtav1", (64, 64)), ("dv", "dvvideo", (576, 720))], ids=["obu", "dv"]
)
def test_a_frame_that_is_cut_is_not_shown(tmp_path: Path, form: str, codec: str, size: tuple[int, int]) -> None:
    path = tmp_path / f"film.{form}"
    data = film(path, [numbered(20 * i, *size) for i in range(8)], codec=codec, pix_fmt="yuv420p").read_bytes()
    whole, failures = decoded(path, ("frame_90",))
    assert (len(whole), failures) == (8, [])
    path.write_bytes(data[:-5])
    rows, failures = decoded(path, ("frame_90",))
    assert [(failure.kind, failure.frame_index) for failure in failures] == [("truncated", 7)]
    assert all(np.array_equal(row["frame_90"], before["frame_90"]) for row, before in zip(rows, whole, strict=False))


@pytest.mark.parametrize(
    ("codec", "data", "dts", "shown"),
    [
        ("theora", b"", 3, False),  # repeats the frame before it
        ("theora", b"\x80theora", 0, False),  # a header, again where films were joined
        ("theora", b"\x40", 3, True),
        ("vp8", b"\x80", 3, True),
        ("h264", b"", None, True),  # ends the film
    ],
)
def test_packets_that_show_nothing_end_nothing(codec: str, data: bytes, dts: int | None, shown: bool) -> None:
    class Packet(bytes):
        size, stream = len(data), SimpleNamespace(codec_context=SimpleNamespace(name=codec))

    packet = Packet(data)
    packet.dts = dts
    assert has_content(packet) is shown


@pytest.mark.parametrize(("matrix", "kinds"), [(5, []), (8, ["unsupported"]), (14, ["unsupported"])])
def test_a_matrix_that_is_not_read_is_no_damage(tmp_path: Path, matrix: int, kinds: list[str]) -> None:
    with av.open(str(tmp_path / "film.mkv"), "w") as out:
        track = out.add_stream("libx264", rate=25)
        track.width, track.height, track.pix_fmt = 64, 32, "yuv420p"
        track.codec_context.colorspace = matrix
        av_frame = av.VideoFrame.from_ndarray(coded(5), format="rgb24").reformat(format="yuv420p")
        out.mux(track.encode(av_frame) + track.encode(None))
    rows, failures = decoded(tmp_path / "film.mkv")
    assert len(rows) == (not kinds) and [failure.kind for failure in failures] == kinds


@pytest.mark.parametrize("name", ["PatchWelcomeError", "DecoderNotFoundError"])
def test_what_libav_cannot_read_is_not_called_damaged(name: str) -> None:
    error, kind = getattr(av.error, name), Kind(decoder="video", name="avi")
    with pytest.raises(MediaError) as caught, decode_errors(io.BytesIO(b"RIFF"), kind):
        raise error(1, "not yet implemented")
    assert caught.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("codec", ["libx264", "mpeg2video"])
def test_a_part_of_a_transport_stream_begins_at_its_first_key_frame(tmp_path: Path, codec: str) -> None:
    """Wherever the stream was cut: H.264's decoder may refuse a frame without its parameter sets."""
    whole = write(tmp_path / "whole.ts", range(60), base=Fraction(1, 25), codec=codec, options={"g": "12"})
    data = whole.read_bytes()
    for at in range(1, len(data) // 2, len(data) // 24):
        (tmp_path / "part.ts").write_bytes(data[at:])
        rows, failures = decoded(tmp_path / "part.ts")
        numbers = seen(rows)
        assert failures == [] and numbers == list(range(numbers[0], 60)), at
        assert [row["frame_index"] for row in rows] == list(range(len(rows))), at
