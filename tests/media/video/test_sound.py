"""Each frame has the sound of its time, to the sample, also after lost packets."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image as Pil

from framekiln.contract.columns import SOUND_RATE
from framekiln.media.discovery.listing import list_media
from framekiln.media.file_types import Kind
from framekiln.media.video.audio import SoundTrack
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


def test_time_stamps_that_run_slow_do_not_shift_the_sound(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(50)], sound=click(1.5))

    def slow(packet: av.Packet, _: int) -> av.Packet:
        if packet.stream.type == "audio":
            packet.pts = packet.dts = round(0.9 * packet.pts)
        return packet

    rows, _ = decoded(remuxed(path, tmp_path / "slow.mkv", slow), ("sound",))
    loud = [row["frame_index"] for row in rows if len(row["sound"]) and np.abs(row["sound"]).max() > 5000]
    assert loud in ([33], [33, 34])  # 1.35 s
    assert sum(len(row["sound"]) for row in rows) == pytest.approx(1.8 * SOUND_RATE, abs=0.02 * SOUND_RATE)


def test_no_sound_is_null(tmp_path: Path) -> None:
    film(tmp_path / "film.mkv", [numbered(i) for i in range(3)])
    Pil.fromarray(numbered(1)).save(tmp_path / "photo.png")
    rows, failures = decoded(tmp_path, ("sound", "frame"))
    assert [row["sound"] for row in rows] == [None] * 4 and failures == []


def test_max_frames_cuts_the_sound_too(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mkv", [numbered(i) for i in range(50)], sound=click(1.0))
    rows, _ = decoded(path, ("sound",), max_frames=10)
    assert [len(row["sound"]) for row in rows] == [640] * 10


def heard(path: Path) -> np.ndarray:
    """All samples of a file, -1 to 1."""
    rows, failures = decoded(path, ("sound",))
    assert failures == []
    return np.concatenate([row["sound"] for row in rows]) / 32768


def speaking(path: Path, *tracks: np.ndarray, rate: int = 44_100, codec: str = "flac") -> Path:
    """Write a film of three seconds with sound tracks, each c n from -1 to 1; the first one is the default."""
    with av.open(str(path), "w") as out:
        video_track = out.add_stream("libx264", rate=25)
        video_track.width, video_track.height, video_track.pix_fmt = 24, 16, "yuv420p"
        layouts = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}
        streams = [out.add_stream(codec, rate=rate, layout=layouts[len(track)]) for track in tracks]
        for index in range(75):
            out.mux(video_track.encode(av.VideoFrame.from_ndarray(numbered(index), format="rgb24")))
        out.mux(video_track.encode(None))
        for stream, track in zip(streams, tracks, strict=True):
            packed = (track * 32767).astype(np.int16)
            for start in range(0, packed.shape[1], 1024):
                part = np.ascontiguousarray(packed[:, start : start + 1024].T.reshape(1, -1))
                piece = av.AudioFrame.from_ndarray(part, format="s16", layout=layouts[len(track)])
                piece.sample_rate, piece.time_base, piece.pts = rate, Fraction(1, rate), start
                out.mux(stream.encode(piece))
            out.mux(stream.encode(None))
    return path


def tone(hertz: float = 440.0, rate: int = 44_100) -> np.ndarray:
    return 0.3 * np.sin(2 * np.pi * hertz * np.arange(3 * rate) / rate)


@pytest.mark.parametrize(
    ("gains", "level"),
    [
        ((1, 1), 0.3),
        ((1, -1), 0.3),  # a mean would be silent
        ((1, 0), 0.3),  # a mean would be half as loud
        ((0, 1), 0.3),
        ((0.5, 1), 0.225),  # both have sound: the mean, as players give it
        ((0, 0, 1, 0, 0, 0), 0.3),  # a voice in the middle only
        ((0, 0, 1, 0, 0, 0, 0, 0), 0.3),
        ((1, 1, -1, 0, 0, 0), 0.3),  # a channel with the wrong sign
        ((0, 0, 0, 1, 0, 0), 0.05),  # bass alone is better than silence
        ((0, 0), 0.0),
    ],
)
def test_sound_is_heard_if_any_channel_has_it(tmp_path: Path, gains: tuple[float, ...], level: float) -> None:
    channels = np.stack([gain * tone() for gain in gains])
    sound = heard(speaking(tmp_path / "a.mkv", channels))
    assert np.sqrt(2 * (sound**2).mean()) == pytest.approx(level, abs=0.003)


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.15])
def test_opposite_phase_is_heard_in_noise(tmp_path: Path, noise: float) -> None:
    own = noise * np.random.default_rng(0).standard_normal((2, 3 * 44_100))
    sound = heard(speaking(tmp_path / "a.mkv", np.stack([tone(), -tone()]) + own))
    assert level_of(sound, 440.0) == pytest.approx(0.3, abs=0.02)


def test_damaged_samples_of_floating_point_are_heard_as_the_rest(tmp_path: Path) -> None:
    channels = np.stack([tone()] * 2)
    path = speaking(tmp_path / "a.mov", channels, codec="pcm_f32le")
    data = bytearray(path.read_bytes())
    at = data.index(b"mdat") + 40_000
    data[at : at + 12] = np.array([np.nan, np.inf, -3e38], "<f4").tobytes()
    path.write_bytes(data)
    assert level_of(heard(path), 440.0) == pytest.approx(0.3, abs=0.02)


def test_a_voice_in_the_centre_stays_above_music_and_bass(tmp_path: Path) -> None:
    voice, music, bass, none = tone(), tone(1000.0), tone(60.0), 0 * tone()
    sound = heard(speaking(tmp_path / "a.mkv", np.stack([music, music, voice, bass, none, none])))
    assert level_of(sound, 440.0) == pytest.approx(0.3 / 2.414, abs=0.01)
    assert level_of(sound, 60.0) < 0.01


def level_of(sound: np.ndarray, hertz: float) -> float:
    """The amplitude of a tone."""
    return float(2 * np.abs((sound * np.exp(-2j * np.pi * hertz * np.arange(len(sound)) / SOUND_RATE)).mean()))


def test_another_track_is_heard_where_the_default_one_is_silent(tmp_path: Path) -> None:
    silent, voice = np.zeros((2, 3 * 44_100)), np.stack([tone()] * 2)
    assert np.abs(heard(speaking(tmp_path / "a.mkv", silent, voice))).max() > 0.25
    assert np.abs(heard(speaking(tmp_path / "b.mkv", 0.1 * voice, voice))).max() < 0.1, "the default has sound"
    assert np.abs(heard(speaking(tmp_path / "c.mkv", silent, silent))).max() == 0
    hiss = 1e-4 * np.random.default_rng(0).standard_normal(silent.shape)
    assert np.abs(heard(speaking(tmp_path / "d.mkv", hiss, voice))).max() > 0.25


@pytest.mark.parametrize("begins", [0.9, 1.7, 2.5])
def test_channels_are_mixed_alike_from_any_second_on(tmp_path: Path, begins: float) -> None:
    """A voice moves from the left to the right, with its phase turned: each second has a mix of its own."""
    at = np.arange(3 * 44_100) / 44_100
    channels = np.stack([(at < 1.3) * tone(), (at > 0.8) * -tone(), *[0 * at] * 6])
    path = speaking(tmp_path / "a.mov", channels, codec="pcm_s16le")
    (media,) = list_media(str(path))
    whole, part = (
        SoundTrack(media, Kind(decoder="video", name="mov"), 0.0, start).until(None) for start in (None, begins)
    )
    assert whole is not None and part is not None
    assert np.array_equal(whole[round(begins * SOUND_RATE) :], part)
