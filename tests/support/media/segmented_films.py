"""Films of several codecs for tests of segments, decoded task by task, and damaged."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import av
import numpy as np

from framekiln.contract.packet import Packet
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.packets.decode import decode
from framekiln.media.units import Unit, split_unit
from tests.support.media.own_thread import in_own_thread

SMALL = {"segment_frames": 4, "segment_pixels": 1}  # one for each closed GOP of the samples
WHOLE = 1 << 40  # bytes of a segment: larger than any film
FRAMES, GOP, RATE = 120, 10, 25
FILMS: dict[str, tuple[str, dict[str, str], str]] = {  # codec, its options, codec of the sound
    "b-frames": ("libx264", {"bf": "3", "x264-params": "b-adapt=0:scenecut=0"}, "aac"),
    "all key frames": ("mjpeg", {}, "pcm_s16le"),
    "variable rate": ("libx264", {"bf": "2"}, "pcm_s16le"),
    "open and closed": ("libx265", {"x265-params": "open-gop=1:scenecut=0:log-level=none"}, "aac"),
    "no reordering": ("mpeg4", {"bf": "0"}, ""),
    "av1": ("libsvtav1", {"preset": "12"}, ""),
}


def times(name: str) -> Iterator[int]:
    """Return the times of frames in 1/600 s."""
    rng = np.random.default_rng(1)
    steps = rng.integers(8, 90, FRAMES) if name == "variable rate" else np.full(FRAMES, 600 // RATE)
    return iter((np.cumsum(steps) - steps[0]).tolist())


@cache
@in_own_thread
def sample_film(name: str) -> Path:
    """Write a film of moving noise with noise as sound; in some, video or sound or both begin late."""
    codec, options, sound_codec = FILMS[name]
    path = Path(mkdtemp()) / ("film.mp4" if name == "av1" else "film.mov")
    rng = np.random.default_rng(0)
    scene = np.kron(rng.integers(0, 255, (8, 12, 3), np.uint8), np.ones((8, 8, 1), np.uint8))
    with av.open(str(path), "w") as out:
        track = out.add_stream(codec, rate=RATE, options=options)
        track.height, track.width, track.pix_fmt = 64, 96, "yuvj420p" if codec == "mjpeg" else "yuv420p"
        track.gop_size = GOP
        if name == "variable rate":
            track.codec_context.time_base = Fraction(1, 600)
        sound = out.add_stream(sound_codec, rate=44_100, layout="stereo") if sound_codec else None
        if sound_codec == "aac":
            sound.codec_context.options = {"aac_pns": "0"}  # no noise from a generator that runs through the film
        last = 0
        for number, last in enumerate(times(name)):
            av_frame = av.VideoFrame.from_ndarray(np.roll(scene, 3 * number, axis=1), format="rgb24")
            av_frame.pts, av_frame.time_base = last + 20 * (name == "variable rate"), Fraction(1, 600)
            out.mux(track.encode(av_frame))
        out.mux(track.encode(None))
        wave = (3000 * rng.standard_normal((2, last * 44_100 // 600))).astype(np.int16)
        for start in range(0, wave.shape[1] if sound else 0, 1024):
            part = np.ascontiguousarray(wave[:, start : start + 1024].T.reshape(1, -1))
            piece = av.AudioFrame.from_ndarray(part, format="s16", layout="stereo")
            piece.sample_rate, piece.time_base, piece.pts = 44_100, Fraction(1, 44_100), start + 441
            out.mux(sound.encode(piece))
        if sound:
            out.mux(sound.encode(None))
    return path


def unit_of(path: Path) -> Unit:
    """Return the unit of a film."""
    return Unit(name="unit", media=tuple(list_media(str(path))))


def by_task(path: Path, columns: tuple[str, ...], halo: int = 0, *, tasks: int, **config: Any) -> list[list[Packet]]:
    """Return the packets of each task on a film, decoded from the last to the first."""
    unit, rule = unit_of(path), DecodeConfig(**config)
    parts = split_unit(unit, path.stat().st_size // tasks)
    assert len(parts) == tasks
    return [list(decode(unit, columns, halo, rule, wanted)) for wanted in reversed(parts)][::-1]


def same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other)


def check_rows(rows: list[dict], expected: list[dict]) -> None:
    """Check that rows are equal except for the numbers of clips."""
    assert [row["frame_index"] for row in rows] == [row["frame_index"] for row in expected]
    for row, other in zip(rows, expected, strict=True):
        names = row.keys() - {"clip_index"}
        assert [name for name in names if not same(row[name], other[name])] == [], row["frame_index"]


def places(path: Path) -> list[tuple[int, int]]:
    """Return position and size of each packet of the video track, in bytes."""
    with av.open(str(path)) as container:
        return [(entry.pos, entry.size) for entry in container.streams.video[0].index_entries]


def damage(path: Path, copy: Path, first: int, last: int) -> Path:
    """Copy a film with zeros in place of the packets of some frames, key frames included."""
    data = bytearray(path.read_bytes())
    for place, size in places(path)[first : last + 1]:
        data[place : place + size] = bytes(size)
    copy.write_bytes(data)
    return copy
