"""Each frame has the sound of its time, to the sample, also after lost packets."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image as Pil

from framekiln.contract.columns import SOUND_RATE
from tests.support.media.films import KINDS, made_film
from tests.support.media.media_factory import click, decoded, film, numbered
from tests.support.media.remux import remuxed

_PULSES_S = (0.51, 1.25, 2.71)  # on the clock of the container, none at the edge of a slice


def sounding(
    path: Path, *, rate: int, layout: str, codec: str, video_s: Fraction, sound_s: Fraction, lost: tuple[int, ...] = ()
) -> Path:
    """Write three seconds at 30000/1001 frames/s, with equal pulses of 0.3 ms in all channels."""
    with av.open(str(path), "w") as out:
        video_track = out.add_stream("libx264", rate=Fraction(30000, 1001), options={"bf": "2"})
        video_track.width, video_track.height, video_track.pix_fmt = 24, 16, "yuv420p"
        video_track.time_base = video_track.codec_context.time_base = Fraction(1, 30000)
        sound_track = out.add_stream(codec, rate=rate, layout=layout)
        for index in range(90):
            av_frame = av.VideoFrame.from_ndarray(numbered(index), format="rgb24")
            av_frame.pts, av_frame.time_base = index * 1001 + round(video_s * 30000), Fraction(1, 30000)
            out.mux(video_track.encode(av_frame))
        out.mux(video_track.encode(None))
        times = np.arange(3 * rate) / rate + float(sound_s)
        wave = sum(20_000 * np.exp(-(((times - at) / 0.0003) ** 2)) for at in _PULSES_S).astype(np.int16)
        channels = {"mono": 1, "stereo": 2, "5.1": 6}[layout]
        for number, start in enumerate(range(0, len(wave), 1024)):
            part = np.repeat(wave[start : start + 1024], channels)[None]
            piece = av.AudioFrame.from_ndarray(part, format="s16", layout=layout)
            piece.sample_rate, piece.time_base, piece.pts = rate, Fraction(1, rate), start + round(sound_s * rate)
            if number not in lost:
                out.mux(sound_track.encode(piece))
        out.mux(sound_track.encode(None))
    return path


def pulses(path: Path, video_s: Fraction) -> list[float]:
    """Return the times of the pulses on the container's clock: the frame's time plus the place in its slice."""
    rows, failures = decoded(path, ("sound",))
    assert failures == [] and len(rows) == 90
    times = []
    for row in rows[:-1]:
        slice_ = row["sound"].astype(float)
        if len(slice_) and slice_.max() > 4000:
            place = float(slice_.argmax())
            times.append(float(video_s) + row["time_s"] + place / SOUND_RATE)
    return times


@pytest.mark.parametrize("layout", ["mono", "stereo", "5.1"])
@pytest.mark.parametrize("rate", [44_100, 48_000, 16_000])
@pytest.mark.parametrize(
    ("video_s", "sound_s"), [("0", "0"), ("0", "1/100"), ("1/50", "0")], ids=["together", "sound later", "video later"]
)
def test_uncompressed_sound_to_the_sample(tmp_path: Path, layout: str, rate: int, video_s: str, sound_s: str) -> None:
    where = {"video_s": Fraction(video_s), "sound_s": Fraction(sound_s)}
    path = sounding(tmp_path / "film.mov", rate=rate, layout=layout, codec="pcm_s16le", **where)
    assert pulses(path, where["video_s"]) == pytest.approx(_PULSES_S, abs=1.01 / SOUND_RATE)


@pytest.mark.parametrize(
    ("name", "codec", "rate", "samples"),
    [
        ("film.mp4", "aac", 48_000, 1),
        ("film.mp4", "aac", 44_100, 1),
        ("film.mkv", "libopus", 48_000, 17),  # Matroska rounds times of sound and video to 1 ms
        ("film.mkv", "pcm_s16le", 44_100, 17),
    ],
)
def test_compressed_sound_without_its_encoder_delay(
    tmp_path: Path, name: str, codec: str, rate: int, samples: int
) -> None:
    where = {"video_s": Fraction(0), "sound_s": Fraction(0)}
    path = sounding(tmp_path / name, rate=rate, layout="stereo", codec=codec, **where)
    assert pulses(path, where["video_s"]) == pytest.approx(_PULSES_S, abs=samples / SOUND_RATE)


@pytest.mark.parametrize("lost", [(30,), (30, 31, 32), (28, 40)])
def test_lost_pieces_do_not_shift_the_rest(tmp_path: Path, lost: tuple[int, ...]) -> None:
    where = {"video_s": Fraction(0), "sound_s": Fraction(0)}
    path = sounding(tmp_path / "film.mkv", rate=48_000, layout="mono", codec="pcm_s16le", lost=lost, **where)
    assert pulses(path, where["video_s"]) == pytest.approx(_PULSES_S, abs=17 / SOUND_RATE)


# Slices


def resampled(path: Path) -> np.ndarray:
    """Return the whole sound, resampled at once."""
    with av.open(str(path)) as container:
        mixer = av.AudioResampler(format="s16", layout="mono", rate=SOUND_RATE)
        parts = [part for frame in container.decode(audio=0) for part in mixer.resample(frame)]
        return np.concatenate([part.to_ndarray()[0] for part in (*parts, *mixer.resample(None))])


@pytest.mark.parametrize("every_nth", [1, 3])
@pytest.mark.parametrize("name", KINDS)
def test_slices_of_sound_are_the_whole_sound(name: str, every_nth: int) -> None:
    rows, failures = decoded(made_film(name), ("sound",), every_nth=every_nth)
    assert failures == []
    assert all(row["sound"].dtype == np.int16 for row in rows)
    assert np.array_equal(np.concatenate([row["sound"] for row in rows]), resampled(made_film(name)))
    lengths = [len(row["sound"]) for row in rows[1:-1]]
    assert abs(np.median(lengths) - SOUND_RATE * every_nth / rows[0]["fps"]) <= 1


@pytest.mark.parametrize("starts_s", [0.0, 0.5])
def test_sound_belongs_to_the_frame_of_its_time(tmp_path: Path, starts_s: float) -> None:
    frames = [numbered(i) for i in range(50)]
    path = film(tmp_path / "film.mkv", frames, sound=click(1.0 - starts_s, 2 - starts_s), sound_starts_s=starts_s)
    rows, _ = decoded(path, ("sound",))
    loud = [row["frame_index"] for row in rows if len(row["sound"]) and np.abs(row["sound"]).max() > 5000]
    assert loud == [25]
    assert [len(row["sound"]) for row in rows[:10]] == ([640] * 10 if not starts_s else [0] * 10)


def test_a_gap_in_the_sound_does_not_shift_the_rest(tmp_path: Path) -> None:
    frames = [numbered(i) for i in range(50)]
    path = film(tmp_path / "film.mkv", frames, sound=click(1.5))

    def with_gap(packet: av.Packet, _: int) -> av.Packet | None:
        is_lost = packet.stream.type == "audio" and 0.4 < packet.pts * packet.time_base < 1.0
        return None if is_lost else packet

    rows, _ = decoded(remuxed(path, tmp_path / "gap.mkv", with_gap), ("sound",))
    loud = [row["frame_index"] for row in rows if len(row["sound"]) and np.abs(row["sound"]).max() > 5000]
    assert loud in ([37], [37, 38])
    assert sum(len(row["sound"]) for row in rows) == pytest.approx(2 * SOUND_RATE, abs=50)


def test_no_sound_is_null(tmp_path: Path) -> None:
    film(tmp_path / "film.mkv", [numbered(i) for i in range(3)])
    Pil.fromarray(numbered(1)).save(tmp_path / "photo.png")
    rows, failures = decoded(tmp_path, ("sound", "frame"))
    assert [row["sound"] for row in rows] == [None] * 4 and failures == []


def test_max_frames_cuts_the_sound_too(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(50)], sound=click(1.0))
    rows, _ = decoded(path, ("sound",), max_frames=10)
    assert [len(row["sound"]) for row in rows] == [640] * 10
