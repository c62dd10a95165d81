"""A cut or damaged film keeps the frames that are whole, with their numbers and times, and makes up none."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from tests.material import media
from tests.media_factory import decoded, film


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
