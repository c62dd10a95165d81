"""A part of a video: its place in the file, and its packets from the key frame that its first frame needs.

Frames are known by their times from the video's first frame, as in the table `frames`. So a span is found by seeking,
and the hour before it is not decoded.
"""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any, Self

import av

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.access import access_errors
from framekiln.media.config import DecodeConfig
from framekiln.media.file_types import HEAD_BYTES, kind_of
from framekiln.media.files import MediaFile, open_media
from framekiln.media.video.container import (
    decode_errors,
    default_track,
    find_video_track,
    open_container,
    open_film,
    set_limits,
)

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
        origin = next((frame.pts for frame in self._decode_start() if frame.pts is not None), None)
        if origin is None:
            raise MediaError(Reason.EMPTY, "it has no frame with a time")
        self._origin = origin
        self.first, self.last = (origin + round(Fraction(value) / self.base) for value in (span.first_s, span.last_s))
        self.rate = self.track.average_rate or self.track.guessed_rate or Fraction(_FPS)
        # of the sound: the last frame is shown as long as most frames
        self.stop_s = float(self.last * self.base + 1 / self.rate)

    def _decode_start(self) -> Iterator[Any]:
        """Yield frames from the file's start; packets that need what the file lacks are passed over."""
        for packet in self._container.demux(self.track):
            with suppress(av.error.InvalidDataError):
                yield from packet.decode()

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
