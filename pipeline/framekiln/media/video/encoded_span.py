"""A part of a video encoded again, exactly from one frame to another: H.264 and AAC.

Frames keep their times, their sample aspect, their colours and the matrix by which players turn them. Sound begins with
the first frame and ends with the last one.
"""

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import chain
from typing import Any

import av
import numpy as np

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.video.channel_mix import MIN_GAP_S, ChannelReader
from framekiln.media.video.film_span import BACK_S, FilmSpan
from framekiln.media.video.packet_decoder import FrameNumbers, PacketDecoder
from framekiln.media.video.shown_frames import untagged_matrix

CRF = 18
"""x264's rate factor: its own guide calls 17 to 18 visually lossless or nearly so."""
# Takes 0.36 of the processor time of x264's default, and 0.84 of its bytes, for 44.9 instead of 46.5 dB (a pan, 1080p).
_PRESET = "veryfast"
_SOUND_BITS = 96_000  # bits of AAC for each channel and second: listeners hardly tell it from the source
# Places of channels whose places a film does not say, as PCM's in AVI, MXF and Matroska. Of more channels, as of many
# microphones, the first two are taken.
_USUAL = {1: "mono", 2: "stereo", 3: "2.1", 4: "4.0", 5: "5.0", 6: "5.1", 7: "6.1", 8: "7.1"}
_PAIR = "stereo"
_RATE = 48_000  # of sound whose own rate AAC lacks
_LIMITED, _FULL = 1, 2  # AVColorRange


class EncodedSpan:
    """Frames of an open video's span, encoded into tracks of a file being written."""

    def __init__(self, film: FilmSpan, out: Any, sound: Any) -> None:
        """Decode the first frame, and add tracks to `out`; `sound` is the video's sound track, or None.

        Raises:
            MediaError: the film has no frame at the span's first time, or it cannot be decoded.
        """
        self._film, self._sound = film, sound
        self._error = MediaError(Reason.CORRUPT, "it has no frame at the time of the clip's first frame")
        for back_s in BACK_S:  # streams without whole key frames need some frames before they decode
            self._frames = self._decode(back_s)
            self._first = next(self._frames, None)
            if self._first is not None and self._first.pts == film.first:
                break
        else:
            raise self._error
        self.start, self.frames, self.hidden = film.first, 0, False
        self._track = self._add_video(out, self._first)
        self._sound_track: Any = None if sound is None else _add_sound(out, sound)

    def _decode(self, back_s: float) -> Iterator[Any]:
        """Yield the span's frames in the order in which they are shown."""
        film, begun = self._film, False
        decoder = PacketDecoder(film.track, film.kind)
        for item in decoder.frames(chain(film.packets(back_s), [av.Packet()]), FrameNumbers(timed=True)):
            if not isinstance(item, tuple):
                self._error = item.error
                if begun:
                    raise self._error
                continue
            frame = item[1]
            if frame.pts is not None and film.first <= frame.pts <= film.last:
                begun = True
                yield frame
            if frame.pts is not None and frame.pts >= film.last:
                return

    def _add_video(self, out: Any, frame: Any) -> Any:
        source = self._film.track.codec_context
        track = out.add_stream("libx264", rate=self._film.rate, options={"crf": str(CRF), "preset": _PRESET})
        track.width, track.height, track.pix_fmt = frame.width, frame.height, _choose_format(frame)
        context = track.codec_context
        context.time_base = self._film.base
        if aspect := self._film.track.sample_aspect_ratio or source.sample_aspect_ratio:
            context.sample_aspect_ratio = aspect
        context.color_range, context.color_primaries = _choose_range(frame), frame.color_primaries
        context.color_trc = frame.color_trc
        context.colorspace = untagged_matrix(frame) if frame.format.is_rgb else frame.colorspace
        if data := _read_display_matrix(frame):
            track.set_display_matrix(np.frombuffer(data, np.int32).tolist())
        return track

    def video(self) -> Iterator[Any]:
        """Yield the packets of the video, the first frame at time 0."""
        frame = self._first
        while frame is not None:
            self.frames += 1
            yield from self._track.encode(self._prepare(frame))
            frame = next(self._frames, None)
        yield from self._track.encode(None)

    def _prepare(self, frame: Any) -> Any:
        pts, context = frame.pts, self._track.codec_context
        if frame.format.name != context.pix_fmt:
            matrix = context.colorspace if frame.format.is_rgb else None
            to = {"dst_colorspace": matrix, "dst_color_range": context.color_range}
            frame = frame.reformat(format=context.pix_fmt, **to, threads=1)
        frame.pts, frame.time_base = pts - self.start, self._film.base
        frame.pict_type = av.video.frame.PictureType.NONE  # the encoder chooses key frames
        return frame

    def sound(self) -> Iterator[Any]:
        """Yield the packets of the sound, on the same clock."""
        if self._sound_track is not None:
            for piece in self._cut_sound():
                yield from self._sound_track.encode(piece)
            yield from self._sound_track.encode(None)

    def _cut_sound(self) -> Iterator[Any]:
        """Yield the sound from the first frame to the end of the last, with silence where the video has none."""
        rate, start_s = self._sound_track.rate, float(self.start * self._film.base)
        total, done, reader = round((self._film.stop_s - start_s) * rate), 0, ChannelReader(rate)
        for piece in self._decode_sound(start_s):
            at = round((piece.time - start_s) * rate)
            if abs(at - done) <= MIN_GAP_S * rate and done:
                at = done
            values = reader.read(piece)[:, max(0, done - at) :]
            missing = max(0, min(at, total) - done)
            values = np.pad(values, ((0, 0), (missing, 0)))[:, : total - done]
            if values.shape[1]:
                yield self._make_piece(values, done)
                done += values.shape[1]
            if done >= total:
                return

    def _decode_sound(self, start_s: float) -> Iterator[Any]:
        for packet in chain(self._film.sound_packets(self._sound, start_s), [None]):
            try:
                yield from (piece for piece in self._sound.decode(packet) if piece.time is not None)
            except av.FFmpegError:
                continue  # becomes silence

    def _make_piece(self, values: Any, at: int) -> Any:
        rate, layout = self._sound_track.rate, self._sound_track.layout
        channels = np.resize(values, (layout.nb_channels, values.shape[1]))  # a film may change their number
        packed = np.ascontiguousarray(channels.T).reshape(1, -1)
        piece = av.AudioFrame.from_ndarray(packed, format="flt", layout=layout.name)
        piece.sample_rate, piece.time_base, piece.pts = rate, Fraction(1, rate), at
        return piece


def _add_sound(out: Any, sound: Any) -> Any:
    """Add a track of AAC with the sound's channels and rate, or with the nearest that AAC has."""
    names = (sound.layout.name, _USUAL.get(sound.layout.nb_channels, _PAIR), _PAIR)
    layout = next(name for name in names if _is_encodable(name))
    rate = sound.rate if sound.rate in (av.Codec("aac", "w").audio_rates or ()) else _RATE
    track = out.add_stream("aac", rate=rate, layout=layout)
    track.bit_rate = _SOUND_BITS * track.layout.nb_channels
    return track


def _is_encodable(layout: str) -> bool:
    context = av.CodecContext.create("aac", "w")
    context.sample_rate, context.layout, context.format = _RATE, layout, "fltp"
    with suppress(av.FFmpegError):
        context.open()
        return True
    return False


def _choose_format(frame: Any) -> str:
    """Return the pixel format to encode: 4:2:0 with the video's depth, or 4:4:4 if a side is odd."""
    deep = any(component.bits > 8 for component in frame.format.components)
    full = "j" if _choose_range(frame) == _FULL and not deep else ""
    planes = "444" if frame.width % 2 or frame.height % 2 else "420"
    return f"yuv{full}{planes}p{'10le' if deep else ''}"


def _choose_range(frame: Any) -> int:
    return _LIMITED if frame.format.is_rgb else _FULL if frame.format.name.startswith("yuvj") else frame.color_range


def _read_display_matrix(frame: Any) -> Any:
    with suppress(ValueError):  # as in `DisplayMatrix`
        return frame.side_data.get("DISPLAYMATRIX")
    return None
