"""Decoding a long film takes no more memory than a short one, as a whole or in segments."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from tests.support.media.media_factory import click, film, numbered

_CODE = """
import sys
from tests.support.media.media_factory import DecodeConfig, Unit, decode, list_media
from tests.support.machine.memory import peak_mb
unit = Unit(name="u", media=tuple(list_media(sys.argv[1])))
rows = 0
for packet in decode(unit, [sys.argv[2], "sound"], 1, DecodeConfig(packet_bytes=32 << 20, every_nth=int(sys.argv[3]))):
    assert not packet.failures, packet.failures
    last = packet.rows["time_s"].to_pylist()[-1:] or last
    rows += packet.stop - packet.start
    if last[0] <= 60 or packet.start == packet.stop:
        print(last[0], rows, peak_mb())
"""

_SHARES = """
import sys
from framekiln.media.units import split_unit
from tests.support.media.media_factory import DecodeConfig, Unit, decode, list_media
from tests.support.machine.memory import peak_mb
unit = Unit(name="u", media=tuple(list_media(sys.argv[1])))
rule = DecodeConfig(packet_bytes=32 << 20)
shares = split_unit(unit, int(sys.argv[2]))
rows = [sum(p.rows.num_rows for p in decode(unit, ["frame", "sound"], 0, rule, n)) for n in shares]
print(len([count for count in rows if count]), sum(rows), peak_mb())
"""

_AGAIN = """
import resource, sys
from framekiln.media.packets.decode import keep_freed_memory
from tests.support.media.media_factory import DecodeConfig, Unit, decode, list_media
unit = Unit(name="u", media=tuple(list_media(sys.argv[1])))
keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    rows = sum(packet.rows.num_rows for packet in decode(unit, ["frame"], 0, DecodeConfig(packet_bytes=64 << 20)))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def looped(path: Path, *, height: int, width: int, minutes: float, gop: int = 50) -> Path:
    """Write one GOP of noise and one piece of sound, repeated with rising times at 25 frames a second."""
    rng = np.random.default_rng(0)
    scene = np.kron(rng.integers(0, 255, (height // 8, width // 8, 3), np.uint8), np.ones((8, 8, 1), np.uint8))
    with av.open(str(path), "w") as out:
        track = out.add_stream("libx264", rate=25, options={"bf": "0", "g": str(gop), "preset": "ultrafast"})
        track.width, track.height, track.pix_fmt = width, height, "yuv420p"
        sound = out.add_stream("pcm_s16le", rate=16_000, layout="mono")
        frames = (av.VideoFrame.from_ndarray(np.roll(scene, 2 * i, axis=1), format="rgb24") for i in range(gop))
        packets = [bytes(packet) for frame in frames for packet in track.encode(frame)]
        packets += [bytes(packet) for packet in track.encode(None)]
        for index in range(round(minutes * 60 * 25)):
            for data, stream, time, base in (
                (packets[index % gop], track, index, Fraction(1, 25)),
                (b"\x01\x02" * 640, sound, index * 640, Fraction(1, 16_000)),
            ):
                packet = av.Packet(data)
                packet.stream, packet.pts, packet.dts, packet.time_base = stream, time, time, base
                packet.is_keyframe = stream is sound or index % gop == 0
                out.mux(packet)
    return path


def peaks(path: Path, column: str = "frame", every_nth: int = 1) -> list[tuple[float, int, float]]:
    """Return time of the last row in s, rows so far and peak MB, at packets of the first minute and at the end."""
    command = [sys.executable, "-c", _CODE, str(path), column, str(every_nth)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in run.stdout.splitlines()]
    return [(float(time), int(rows), float(peak)) for time, rows, peak in lines]


@pytest.mark.heavy
def test_twenty_minutes_take_as_much_memory_as_one(tmp_path: Path) -> None:
    *_, first, end = peaks(looped(tmp_path / "film.mov", height=96, width=160, minutes=20))
    assert end[:2] == (pytest.approx(1199.96), 30_000)
    assert 40 < first[0] <= 60
    assert end[2] - first[2] < 40, (first, end)  # MB; its pixels are 1.4 GB, its sound 38 MB


@pytest.mark.heavy
def test_segments_of_twenty_minutes_take_as_much_memory_as_five(tmp_path: Path) -> None:
    """Index, sound and images of a film read in segments do not accumulate."""
    results, size = {}, 0
    for minutes in (5, 20):
        path = looped(tmp_path / f"{minutes}.mov", height=96, width=160, minutes=minutes)
        size = size or path.stat().st_size // 2
        command = [sys.executable, "-c", _SHARES, str(path), str(size)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        results[minutes] = [float(word) for word in run.stdout.split()]
    assert [values[1] for values in results.values()] == [7_500, 30_000]
    assert results[5][0] == 2 and results[20][0] >= 7
    assert results[20][2] - results[5][2] < 40, results  # MB; pixels of the fifteen minutes between are 1 GB


@pytest.mark.heavy
def test_memory_does_not_grow_with_length(tmp_path: Path) -> None:
    """The same with larger frames and compressed sound."""
    ends = []
    for seconds in (4, 24):
        frames = [numbered(i, 360, 640) for i in range(25)] * seconds
        options = {"codec": "libx264", "pix_fmt": "yuv420p", "sound": click(1, seconds), "sound_codec": "aac"}
        ends.append(peaks(film(tmp_path / f"{seconds}.mp4", frames, **options))[-1])
    (_, few, less), (_, many, more) = ends
    assert (few, many) == (100, 600)
    assert more - less < 40, ends  # MB; 500 more frames are 346 MB of pixels


def test_frames_are_decoded_into_memory_of_earlier_ones(tmp_path: Path) -> None:
    film = looped(tmp_path / "film.mov", height=720, width=1280, minutes=0.2, gop=10)
    run = subprocess.run([sys.executable, "-c", _AGAIN, str(film)], capture_output=True, text=True, check=True)
    rows, faults = map(int, run.stdout.split())
    pages = rows * 720 * 1280 * 3 / 4096
    assert rows == 300 and faults < pages / 10  # a third of them without
