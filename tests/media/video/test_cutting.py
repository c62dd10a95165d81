"""Clips cut out of films, compared by the number in each frame and by a click in the sound."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.discovery.listing import list_media
from framekiln.media.video.cutting import Clip, cut, from_key, up_to
from framekiln.media.video.film_span import Span
from tests.support.media.media_factory import click, decoded, film
from tests.support.media.photos import take
from tests.support.media.remux import remuxed
from tests.support.media.segmented_films import sample_film, times

FPS, FRAMES, BITS, SIDE = 25, 80, 7, 16
FIRST, LAST, CLICK_S = 30, 50, 1.5
KINDS = {  # codecs of video and sound, its options
    "open.mp4": ("libx264", "aac", {"bf": "3", "x264-params": "open-gop=1:scenecut=0"}),
    "camera.mov": ("libx264", "pcm_s16le", {"bf": "2"}),
    "open.mkv": ("libx265", "libopus", {"x265-params": "log-level=none:open-gop=1:scenecut=0:pools=1"}),
    "web.webm": ("libvpx-vp9", "libopus", {"deadline": "realtime"}),
    "broadcast.ts": ("mpeg2video", "mp2", {"bf": "2"}),
}


def paint(number):
    """Return an image with the number in white and black squares, the lowest bit first."""
    bits = [255 * (number >> place & 1) for place in range(BITS)]
    return np.repeat(np.kron(np.array([bits], np.uint8), np.ones((SIDE, SIDE), np.uint8))[..., None], 3, axis=2)


def read_numbers(path):
    """Return the number in each frame of a film."""
    rows, failures = decoded(path)
    assert not failures
    whites = [row["frame"][SIDE // 2, SIDE // 2 :: SIDE, 0] > 127 for row in rows]
    return [int(white @ (1 << np.arange(BITS))) for white in whites]


def find_click(path):
    """Return the time of the first loud sample, in s from the film's first frame."""
    with av.open(str(path)) as container:
        origin = next(container.decode(video=0)).time
    with av.open(str(path)) as container:
        mixer = av.AudioResampler("s16", "mono", 48_000)
        for piece in container.decode(audio=0):
            for part in mixer.resample(piece):
                loud = np.flatnonzero(np.abs(part.to_ndarray()[0].astype(int)) > 6_000)
                if loud.size:
                    return part.time + loud[0] / 48_000 - origin
    raise AssertionError("no click")


def cut_frames(path: Path, to: Path, first: int, last: int, *, exact: bool) -> Clip:
    (media,) = list_media(str(path))
    rows, _ = decoded(path, ())
    clip = cut(media, Span(first_s=rows[first]["time_s"], last_s=rows[last]["time_s"]), to / "clip", exact=exact)
    assert clip.frames == len(decoded(clip.path, ())[0])
    return clip


@pytest.fixture(scope="module", params=KINDS)
def source(request, tmp_path_factory):
    codec, sound_codec, options = KINDS[request.param]
    frames, sound = [paint(number) for number in range(FRAMES)], click(CLICK_S, FRAMES / FPS)
    path = tmp_path_factory.mktemp("films") / request.param
    return film(path, frames, codec=codec, pix_fmt="yuv420p", sound=sound, sound_codec=sound_codec, options=options)


def test_an_exact_clip_has_these_frames_and_their_sound(source, tmp_path):
    clip = cut_frames(source, tmp_path, FIRST, LAST, exact=True)
    assert clip.path.name == "clip.mp4" and clip.has_sound
    assert read_numbers(clip.path) == list(range(FIRST, LAST + 1))
    assert clip.start_s == pytest.approx(FIRST / FPS, abs=0.001)
    assert find_click(clip.path) == pytest.approx(find_click(source) - clip.start_s, abs=0.002)
    with av.open(str(clip.path)) as container:
        assert next(container.demux(video=0)).is_keyframe and container.streams.video[0].codec_context.name == "h264"
        seconds = [float(track.duration * track.time_base) for track in container.streams]
    assert seconds == pytest.approx([(LAST + 1 - FIRST) / FPS] * 2, abs=0.025)


def test_a_copied_clip_begins_at_a_key_frame_and_lacks_no_frame(source, tmp_path):
    clip = cut_frames(source, tmp_path, FIRST, LAST, exact=False)
    numbers = read_numbers(clip.path)
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert FIRST - 12 < numbers[0] <= FIRST and LAST <= numbers[-1] < LAST + 16
    assert clip.start_s == pytest.approx(numbers[0] / FPS, abs=0.001)
    assert find_click(clip.path) == pytest.approx(find_click(source) - clip.start_s, abs=0.002)
    assert not clip.exact and clip.path.suffix == (".mp4" if source.suffix in (".mp4", ".mkv", ".webm") else ".mkv")


def test_a_clip_whose_copy_lacks_its_first_frames_is_encoded(tmp_path):
    """Streams without whole key frames decode after some frames only, where their start is missing."""
    frames = [paint(number) for number in range(FRAMES)]
    for every in (12, 24):  # the first packets after the second wave's beginning are errors of the decoder
        options = {"x264-params": f"intra-refresh=1:keyint={every}:scenecut=0:bframes=0"}
        source = film(tmp_path / "waves.mp4", frames, codec="libx264", pix_fmt="yuv420p", options=options)
        for first in (FIRST, 24, LAST - 1):  # 24 begins to be refreshed
            clip = cut_frames(source, tmp_path, first, LAST, exact=False)
            assert clip.exact and read_numbers(clip.path) == list(range(first, LAST + 1))


def test_frames_that_a_film_hides_are_in_no_clip(tmp_path):
    """Phones trim films by an edit list: what lies before the start stays in the file."""
    codec, _, options = KINDS["open.mp4"]
    frames = [paint(number) for number in range(FRAMES)]
    whole = film(tmp_path / "whole.mkv", frames, codec=codec, pix_fmt="yuv420p", options=options)
    source, hidden = tmp_path / "trimmed.mov", 8

    def trim(packet, _):
        ticks = round(hidden / FPS / packet.time_base)
        packet.pts, packet.dts = packet.pts - ticks, None if packet.dts is None else packet.dts - ticks
        return packet

    remuxed(whole, source, trim, avoid_negative_ts="disabled", use_editlist="1")
    shown = read_numbers(source)
    assert hidden <= shown[0] < hidden + 12 and shown[-1] == FRAMES - 1
    for first in (0, 2, LAST - shown[0]):
        clip = cut_frames(source, tmp_path, first, first + 1, exact=False)
        numbers = read_numbers(clip.path)
        assert clip.exact == (numbers[0] == shown[first]) and numbers[0] >= shown[0]
        assert {shown[first], shown[first + 1]} <= set(numbers)


@pytest.mark.parametrize(
    ("name", "channels", "kept"),
    [
        ("film.avi", 1, 1),
        ("film.mxf", 2, 2),
        ("film.mkv", 1, 1),
        ("film.mkv", 2, 2),
        ("film.mkv", 6, 6),
        ("film.mkv", 16, 2),
    ],
)
def test_sound_is_kept_whose_channels_have_no_named_places(name, channels, kept, tmp_path):
    frames, sound = [paint(number) for number in range(FRAMES)], np.stack([click(CLICK_S, FRAMES / FPS)] * channels)
    codec = "mpeg2video" if name == "film.mxf" else "mpeg4"
    source = film(tmp_path / name, frames, codec=codec, pix_fmt="yuv420p", sound=sound)
    with av.open(str(source)) as container:
        assert container.streams.audio[0].layout.name == f"{channels} channels"
    clip = cut_frames(source, tmp_path, FIRST, LAST, exact=True)
    assert find_click(clip.path) == pytest.approx(CLICK_S - FIRST / FPS, abs=0.002)
    with av.open(str(clip.path)) as container:
        assert container.streams.audio[0].layout.nb_channels == kept


def test_sound_at_a_rate_that_aac_lacks_is_kept(tmp_path):
    whole = film(tmp_path / "whole.mkv", [paint(number) for number in range(FRAMES)], codec="mpeg4", pix_fmt="yuv420p")
    source = tmp_path / "film.mkv"
    with av.open(str(whole)) as video, av.open(str(source), "w") as out:
        track = out.add_stream_from_template(video.streams.video[0])
        sound = out.add_stream("pcm_s16le", rate=192_000, layout="mono")
        piece = av.AudioFrame.from_ndarray(np.repeat(click(CLICK_S, FRAMES / FPS), 4)[None], "s16", "mono")
        piece.sample_rate, piece.pts = 192_000, 0
        for packet in [*sound.encode(piece), *(packet for packet in video.demux() if packet.size)]:
            packet.stream = sound if packet.stream is sound else track
            out.mux(packet)
    clip = cut_frames(source, tmp_path, FIRST, LAST, exact=True)
    assert find_click(clip.path) == pytest.approx(CLICK_S - FIRST / FPS, abs=0.002)


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt", "sound_codec"),
    [("png.mov", "png", "rgb24", "pcm_s16le"), ("sound.avi", "mjpeg", "yuvj420p", "adpcm_ms")],
)
def test_what_cannot_be_copied_is_encoded(name, codec, pix_fmt, sound_codec, tmp_path):
    """PyAV writes neither of these codecs into Matroska."""
    frames, sound = [paint(number) for number in range(FRAMES)], click(CLICK_S, FRAMES / FPS)
    source = film(tmp_path / name, frames, codec=codec, pix_fmt=pix_fmt, sound=sound, sound_codec=sound_codec)
    clip = cut_frames(source, tmp_path, FIRST, LAST, exact=False)
    assert clip.exact and clip.has_sound and read_numbers(clip.path) == list(range(FIRST, LAST + 1))


@pytest.mark.parametrize("exact", [True, False])
def test_the_first_and_the_last_frames_of_a_film(exact, tmp_path):
    source = film(tmp_path / "silent.mp4", [paint(i) for i in range(30)], codec="libx264", pix_fmt="yuv420p")
    clip = cut_frames(source, tmp_path, 0, 0, exact=exact)
    assert read_numbers(clip.path)[0] == 0 and not clip.has_sound
    assert read_numbers(cut_frames(source, tmp_path, 20, 29, exact=exact).path)[-1] == 29


@pytest.mark.parametrize("exact", [True, False])
def test_a_variable_rate_is_kept(exact, tmp_path):
    clip = cut_frames(sample_film("variable rate"), tmp_path, 40, 60, exact=exact)
    own = [row["time_s"] for row in decoded(clip.path, ())[0]]
    right = np.array(list(times("variable rate"))) / 600
    begins = int(np.argmin(abs(right - right[0] - clip.start_s)))
    assert np.allclose(own, right[begins : begins + len(own)] - right[begins], atol=0.002)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("pixels", ["yuv420p", "yuv420p10le", "yuvj420p"])
def test_turn_aspect_and_colours_are_kept(exact, pixels, tmp_path):
    plain = tmp_path / "plain.mov"
    film(plain, take("flower.jpg", 30, 48, 64), codec="libx264", pix_fmt=pixels, colorspace=1, options={"crf": "10"})
    turned = tmp_path / "turned.mov"
    with av.open(str(plain)) as container, av.open(str(turned), "w") as out:
        track = out.add_stream_from_template(container.streams.video[0])
        track.set_display_rotation(90)
        track.codec_context.sample_aspect_ratio = Fraction(4, 3)
        for packet in container.demux(video=0):
            if packet.size:
                packet.stream = track
                out.mux(packet)
    clip = cut_frames(turned, tmp_path, 12, 20, exact=exact)
    (before, _), (after, _) = decoded(turned), decoded(clip.path)
    assert (after[0]["height"], after[0]["width"]) == (64, 48)
    assert np.abs(after[0]["frame"].astype(int) - before[12]["frame"]).mean() < 4
    with av.open(str(turned)) as one, av.open(str(clip.path)) as other:
        pairs = [(c.streams.video[0], next(c.decode(video=0))) for c in (one, other)]
    described = [(t.sample_aspect_ratio, f.colorspace, f.color_range, f.format.components[0].bits) for t, f in pairs]
    assert described[0] == described[1]


def test_odd_sides_and_rgb_are_kept(tmp_path):
    frames = [np.full((33, 47, 3), (200, 40, 90), np.uint8)] * 5
    rows, _ = decoded(cut_frames(film(tmp_path / "odd.mkv", frames), tmp_path, 1, 3, exact=True).path)
    assert len(rows) == 3 and rows[0]["frame"].shape == (33, 47, 3)
    assert np.abs(rows[0]["frame"].astype(int) - frames[0]).max() <= 3


def test_a_stream_that_begins_between_key_frames_is_cut(tmp_path):
    """A recording of a broadcast begins anywhere; HEVC's decoder refuses packets before the first parameters."""
    codec, _, options = KINDS["open.mkv"]
    frames = [paint(number) for number in range(FRAMES)]
    whole = film(tmp_path / "whole.ts", frames, codec=codec, pix_fmt="yuv420p", options=options)
    source, data = tmp_path / "late.ts", whole.read_bytes()
    source.write_bytes(data[len(data) // 188 // 10 * 188 :])
    shown = read_numbers(source)
    assert 0 < shown[0] < 20
    numbers = read_numbers(cut_frames(source, tmp_path, 20, 30, exact=False).path)
    assert set(shown[20:31]) <= set(numbers) and numbers == list(range(numbers[0], numbers[-1] + 1))


def test_what_cannot_be_cut_is_an_error_of_media(tmp_path):
    source = film(tmp_path / "film.mp4", [paint(i) for i in range(40)], codec="libx264", pix_fmt="yuv420p", gop=10)
    (media,) = list_media(str(source))
    for exact, first_s, reason in ((True, 0.517, Reason.CORRUPT), (False, -1.0, Reason.CORRUPT)):
        with pytest.raises(MediaError) as caught:
            cut(media, Span(first_s=first_s, last_s=0.9), tmp_path / "clip", exact=exact)
        assert caught.value.reason is reason
    data = bytearray(source.read_bytes())
    with av.open(str(source)) as container:
        places = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    for place, size in places[22:26]:
        data[place : place + size] = bytes(size)
    source.write_bytes(data)
    (media,) = list_media(str(source))
    with pytest.raises(MediaError):
        cut(media, Span(first_s=0.8, last_s=1.2), tmp_path / "clip", exact=True)


class Stored:
    """A packet by its time and whether it is a key frame."""

    def __init__(self, pts, is_keyframe=False):
        self.pts, self.is_keyframe = pts, is_keyframe


def test_packets_are_chosen_by_the_order_in_which_they_are_stored():
    stored = [Stored(0, True), Stored(3), Stored(1), Stored(2), Stored(6, True), Stored(4), Stored(5), Stored(9)]
    assert [packet.pts for packet in from_key(stored, 5)] == [0, 3, 1, 2, 6, 4, 5, 9]
    assert [packet.pts for packet in from_key(stored, 6)] == [6, 9]
    assert [packet.pts for packet in up_to(stored, 1)] == [0, 3, 1, 2]
    long = [Stored(i, i % 40 == 0) for i in range(200)]
    assert [packet.pts for packet in up_to(from_key(long, 85), 150)] == list(range(80, 151))


def stamp(mark: int, ticks: int) -> bytes:
    """Return a time stamp of MPEG-PS below 2**22, as of ISO/IEC 11172-1, 2.4.3.3."""
    return bytes([mark << 4 | 1, ticks >> 22, (ticks >> 14) & 254 | 1, (ticks >> 7) & 255, (ticks << 1) & 254 | 1])


@pytest.mark.parametrize("exact", [True, False])
def test_the_start_of_a_film_is_found_where_seeking_lands_after_it(exact, tmp_path):
    noise = list(np.random.default_rng(0).integers(0, 256, (30, 96, 128, 3), np.uint8))
    sound = {"sound": click(0.2, 30 / FPS), "sound_codec": "mp2"}
    options = {"options": {"b": "8M", "sc_threshold": "1000000000"}, "container": {"preload": "0"}}
    path = film(tmp_path / "old.mpg", noise, codec="mpeg1video", pix_fmt="yuv420p", **sound, **options)
    data = path.read_bytes()
    for before, now in (((3600, 0), (0, 0)), ((7200, 3600), (3600, 0))):  # pts and dts of the first two frames
        old, new = (stamp(3, shown) + stamp(1, stored) for shown, stored in (before, now))
        assert data.count(old) == 1
        data = data.replace(old, new)
    path.write_bytes(data)
    clip = cut_frames(path, tmp_path, 3, 8, exact=exact)
    assert clip.has_sound and clip.frames >= 6 and (clip.start_s > 0) == exact
