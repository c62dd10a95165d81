"""A part of a video, as packets of its tracks, and encoded again exactly from one frame to another: H.264 and AAC.

Frames are known by their times from the video's first frame, as in the table `frames`. So a span is found by seeking,
and the hour before it is not decoded.

Encoded frames keep their times, their sample aspect, their colours and the matrix by which players turn them. Sound
begins with the first frame and ends with the last one.
"""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any, Self

import av
import numpy as np

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.access import access_errors
from framekiln.media.config import DecodeConfig
from framekiln.media.file_types import HEAD_BYTES, kind_of
from framekiln.media.files import MediaFile, open_media
from framekiln.media.video.channel_mix import MIN_GAP_S, ChannelReader
from framekiln.media.video.container import (
    decode_errors,
    default_track,
    find_video_track,
    open_container,
    open_film,
    set_limits,
)
from framekiln.media.video.packet_decoder import FrameNumbers, PacketDecoder
from framekiln.media.video.shown_frames import untagged_matrix

# Seconds before the first frame at which a key frame is sought, in turn. Seeking uses storage times, so the first key
# frame found may be shown after that frame; in transport streams it lies after the sought place.
BACK_S = (0.0, 2.0, 20.0)
_LEAD_S = 0.5  # s of sound before a span, as in `audio`
_FPS = 25  # if a video states no rate


@dataclass(frozen=True, kw_only=True)
class Span:
    """The frames of a video from one to another, both included, by their times in s from the first frame."""

    first_s: float
    last_s: float


class FilmSpan:
    """An open video and a part of it. Ticks are units of the video track's time base, on the container's clock."""

    def __init__(self, media: MediaFile, span: Span) -> None:
        """Open a film.

        Raises:
            MediaError: it is no film, cannot be read, or states no times by which frames can be found.
        """
        self._opened = ExitStack()
        self._media, self._max_pixels = media, DecodeConfig().max_pixels
        with self._opened:
            with open_media(media) as stream, access_errors():
                self.kind = kind_of(media.media_id, stream.read(HEAD_BYTES))
            if self.kind.decoder != "video":
                raise MediaError(Reason.UNSUPPORTED, "it is a photo; clips are cut from films")
            self._stream = self._opened.enter_context(open_film(media, self.kind))
            with self.errors():
                self._locate(span)
            self._opened = self._opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def errors(self) -> Any:
        """Return a context in which errors of libav are raised as `MediaError`."""
        return decode_errors(self._stream, self.kind)

    def _locate(self, span: Span) -> None:
        self._container = self._opened.enter_context(open_container(self._stream, self.kind, self._max_pixels))
        self.track = find_video_track(self._container, self._media.media_id)
        if self.track.codec_context is None:
            raise MediaError(Reason.UNSUPPORTED, "there is no decoder for its video codec")
        if self.kind.name == "avi" and self.track.codec_context.has_b_frames:
            raise MediaError(Reason.UNSUPPORTED, "an AVI with B-frames has no times; copy it into an MKV first")
        set_limits(self.track.codec_context, self._max_pixels)
        self.base: Fraction = self.track.time_base
        origin = next((frame.pts for frame in self._container.decode(self.track) if frame.pts is not None), None)
        if origin is None:
            raise MediaError(Reason.EMPTY, "it has no frame with a time")
        self._origin = origin
        self.first, self.last = (origin + round(Fraction(value) / self.base) for value in (span.first_s, span.last_s))
        self.rate = self.track.average_rate or self.track.guessed_rate or Fraction(_FPS)
        # of the sound: the last frame is shown as long as most frames
        self.stop_s = float(self.last * self.base + 1 / self.rate)

    def seconds(self, ticks: int) -> float:
        """Return ticks as seconds from the film's first frame."""
        return float((ticks - self._origin) * self.base)

    def packets(self, back_s: float = 0.0) -> Iterator[Any]:
        """Yield the video's packets from a key frame `back_s` or more before the first frame, in order of storage."""
        self.track.codec_context.flush_buffers()
        for seek_s in (seek_s for seek_s in BACK_S if seek_s >= back_s):
            self._container.seek(max(0, self.first - int(Fraction(seek_s) / self.base)), stream=self.track)
            packets = (packet for packet in self._container.demux(self.track) if packet.size)
            key = next((packet for packet in packets if packet.is_keyframe), None)
            if key is not None and key.pts is not None and key.pts <= self.first:
                return chain([key], packets)
        # from the file's first one, through a handle of its own: seeking may pass over it
        stream = self._opened.enter_context(open_film(self._media, self.kind))
        container = self._opened.enter_context(open_container(stream, self.kind, self._max_pixels))
        track = container.streams[self.track.index]
        return (packet for packet in container.demux(track) if packet.size)

    def open_sound(self) -> Any:
        """Open the default sound track, through a handle of its own that closes with the video; None without sound."""
        stream = self._opened.enter_context(open_film(self._media, self.kind))
        container = self._opened.enter_context(open_container(stream, self.kind, 0))
        tracks = [track for track in container.streams.audio if track.codec_context is not None]
        return default_track(tracks) if tracks else None

    def sound_packets(self, track: Any, start_s: float) -> Iterator[Any]:
        """Yield the packets of a sound track from shortly before a time on the container's clock."""
        container = track.container
        container.seek(max(0, int(Fraction(start_s - _LEAD_S) / track.time_base)), stream=track)
        return (packet for packet in container.demux(track) if packet.size and packet.pts is not None)


CRF = 18
"""x264's rate factor: its own guide calls 17 to 18 visually lossless or nearly so."""
# Takes 0.36 of the processor time of x264's default, and 0.84 of its bytes, for 44.9 instead of 46.5 dB (a pan, 1080p).
_PRESET = "veryfast"
_SOUND_BITS = 96_000  # bits of AAC for each channel and second: listeners hardly tell it from the source
_LIMITED, _FULL = 1, 2  # AVColorRange


class EncodedSpan:
    """Frames of an open video's span, encoded into tracks of a file being written."""

    def __init__(self, film: FilmSpan, out: Any, sound: Any) -> None:
        """Decode the first frame, and add tracks to `out`; `sound` is the video's sound track, or None.

        Raises:
            MediaError: the film has no frame at the span's first time, or it cannot be decoded.
        """
        self._film, self._sound = film, sound
        for back_s in BACK_S:  # streams without whole key frames need some frames before they decode
            self._frames = self._decode(back_s)
            self._first = next(self._frames, None)
            if self._first is not None and self._first.pts == film.first:
                break
        else:
            raise MediaError(Reason.CORRUPT, "it has no frame at the time of the clip's first frame")
        self.start, self.frames = film.first, 0
        self._track = self._add_video(out, self._first)
        self._sound_track = None if sound is None else out.add_stream("aac", rate=sound.rate, layout=sound.layout.name)
        if self._sound_track is not None:
            self._sound_track.bit_rate = _SOUND_BITS * sound.layout.nb_channels

    def _decode(self, back_s: float) -> Iterator[Any]:
        """Yield the span's frames in the order in which they are shown."""
        film = self._film
        decoder = PacketDecoder(film.track, film.kind)
        for item in decoder.frames(chain(film.packets(back_s), [av.Packet()]), FrameNumbers(timed=True)):
            if not isinstance(item, tuple):
                raise item.error
            frame = item[1]
            if frame.pts is not None and film.first <= frame.pts <= film.last:
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
        rate, start_s = self._sound.rate, float(self.start * self._film.base)
        total, done, reader = round((self._film.stop_s - start_s) * rate), 0, ChannelReader()
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
        layout = self._sound.layout.name
        packed = np.ascontiguousarray(values.T).reshape(1, -1)
        piece = av.AudioFrame.from_ndarray(packed, format="flt", layout=layout)
        piece.sample_rate, piece.time_base, piece.pts = self._sound.rate, Fraction(1, self._sound.rate), at
        return piece


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
