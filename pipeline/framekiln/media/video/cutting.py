"""Clips cut out of videos into files of their own, with their sound.

Training on video needs many files of a few seconds, which loaders read from the first frame. A copied clip has the
video's packets as stored. It begins at a key frame, and ends where no earlier frame is missing. Open GOPs store frames
after the key frame that are shown before it. They refer to missing frames, so they are left out. An exact clip is
encoded again. A copy is encoded again too if it does not decode, since some streams need earlier packets. The same
holds if it would show frames that the film hides by an edit list.
"""

import heapq
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import av

from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile
from framekiln.media.video.container import set_limits
from framekiln.media.video.encoded_span import EncodedSpan
from framekiln.media.video.film_span import FilmSpan, Span
from framekiln.media.video.segments import REORDERED

# Codecs that players and loaders expect in an MP4; videos with others are copied into Matroska, which holds most.
_IN_MP4 = {"h264", "hevc", "av1", "mpeg4", "vp9", "aac", "mp3", "ac3", "eac3", "alac", "opus", "flac"}
SUFFIXES = (".mp4", ".mkv")


class _NoCopyError(Exception):
    """A part of a film cannot be copied."""


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A file cut out of a video."""

    path: Path
    frames: int
    start_s: float  # time of its first frame, from the video's first one
    has_sound: bool
    exact: bool  # true if encoded again
    hidden: bool = False  # an edit list of the film hides some of its frames


def cut(media: MediaFile, span: Span, path: Path, *, exact: bool) -> Clip:
    """Write a part of a video into a file of its own.

    Args:
        media: the film.
        span: its frames.
        path: of the file, without its ending.
        exact: encode the frames again, from the first to the last one. Otherwise packets are copied: from the last key
            frame at or before the first frame, and up to fewer than 16 frames after the last. If they cannot be
            copied, or the copy does not decode, or has hidden frames, its frames are encoded.

    Raises:
        MediaError: the film cannot be read there.
        OSError: the file cannot be written.
    """
    with FilmSpan(media, span) as film:
        if not exact:
            with suppress(_NoCopyError):
                copied = _write(film, path, exact=False)
                if not copied.hidden and (frames := _count_frames(copied.path)):
                    return replace(copied, frames=frames)
        return _write(film, path, exact=True)


def _write(film: FilmSpan, path: Path, *, exact: bool) -> Clip:
    sound = film.open_sound()
    codecs = {track.codec_context.codec.canonical_name for track in (film.track, sound) if track is not None}
    path = path.with_name(path.name + SUFFIXES[not (exact or codecs <= _IN_MP4)])
    with av.open(str(path), "w", options={"movflags": "+faststart"} if path.suffix == ".mp4" else {}) as out:
        part = _encode(film, out, sound) if exact else _copy(film, out, sound)
    start_s, has_sound = film.seconds(part.start), sound is not None
    return Clip(frames=part.frames, start_s=start_s, hidden=part.hidden, path=path, exact=exact, has_sound=has_sound)


def _count_frames(path: Path) -> int:
    """Return how many frames a copy has; 0 if it does not decode from its first frame on, without damage."""
    with suppress(av.FFmpegError), av.open(str(path)) as container:
        track = container.streams.video[0]
        track.thread_type = "AUTO"
        set_limits(track.codec_context, DecodeConfig().max_pixels)
        packets = container.demux(track)
        first = next(packets)
        found = [(frame.pts, frame.is_corrupt) for packet in chain([first], packets) for frame in packet.decode()]
        if found[:1] == [(first.pts, False)] and not any(is_corrupt for _, is_corrupt in found):
            return len(found)
    return 0


def _encode(film: FilmSpan, out: Any, sound: Any) -> EncodedSpan:
    with film.errors():
        part = EncodedSpan(film, out, sound)
    for packet in _merge(film, part.video(), part.sound()):
        out.mux(packet)
    return part


def _copy(film: FilmSpan, out: Any, sound: Any) -> "CopiedSpan":
    with film.errors():
        part = CopiedSpan(film)
    video = _add_track(out, film.track)
    if aspect := film.track.sample_aspect_ratio:  # the container's own is not in the template
        video.codec_context.sample_aspect_ratio = aspect
    copies = [_set_stream(part.video(), video)]
    if sound is not None:
        copies.append(_set_stream(part.sound(sound), _add_track(out, sound)))
    try:
        for packet in _merge(film, *copies):
            out.mux(packet)
    except (av.error.ArgumentError, av.error.InvalidDataError) as exc:
        raise _NoCopyError from exc
    return part


def _add_track(out: Any, track: Any) -> Any:
    try:
        return out.add_stream_from_template(track)
    except ValueError as exc:  # the container does not hold the codec
        raise _NoCopyError from exc


def _set_stream(packets: Iterator[Any], stream: Any) -> Iterator[Any]:
    for packet in packets:
        packet.stream = stream
        yield packet


def _merge(film: FilmSpan, *tracks: Iterator[Any]) -> Iterator[Any]:
    """Yield the packets of all tracks by storage time. Raises MediaError: the video cannot be read."""
    with film.errors():
        time = lambda packet: (packet.pts if packet.dts is None else packet.dts) * packet.time_base  # noqa: E731
        yield from heapq.merge(*tracks, key=time)


class CopiedSpan:
    """The packets of an open video's span, from the last key frame at or before its first frame."""

    def __init__(self, film: FilmSpan) -> None:
        self._film = film
        self._packets = up_to(from_key(film.packets(), film.first), film.last)
        self._first = next(self._packets, None)
        if self._first is None:
            raise _NoCopyError("no key frame at the first frame of the clip or before")
        self.start: int = self._first.pts  # ticks of the key frame
        self.frames = 0  # packets so far
        self.hidden = False  # whether an edit list hides one of them

    def video(self) -> Iterator[Any]:
        """Yield the packets of the video, from time 0 on."""
        packet = self._first
        while packet is not None:
            self.frames += 1
            self.hidden |= packet.is_discard
            packet.pts -= self.start
            packet.dts = None if packet.dts is None else packet.dts - self.start
            yield packet
            packet = next(self._packets, None)

    def sound(self, track: Any) -> Iterator[Any]:
        """Yield the packets of a sound track that begin inside the span, on the same clock."""
        start_s = float(self.start * self._film.base)
        start = round(start_s / track.time_base)
        for packet in self._film.sound_packets(track, start_s):
            if packet.pts * packet.time_base >= self._film.stop_s:
                return
            if packet.pts >= start:
                packet.pts, packet.dts = packet.pts - start, None if packet.dts is None else packet.dts - start
                yield packet


def from_key(packets: Iterable[Any], first: int) -> Iterator[Any]:
    """Yield packets in storage order, from the last key frame shown at `first` or before, without leading frames.

    Raises _NoCopyError: a packet has no time.
    """
    held: list[Any] = []
    later = 0  # packets shown after `first`, of those held
    for packet in packets:
        if packet.pts is None:
            raise _NoCopyError("packets without times")
        if later > REORDERED:  # no later packet is shown at `first` or before
            yield packet
            continue
        if packet.is_keyframe and packet.pts <= first:
            held, later = [packet], 0
        elif held and packet.pts > held[0].pts:
            held.append(packet)
            later += packet.pts > first
            if later > REORDERED:
                yield from held
                held = []
    yield from held


def up_to(packets: Iterable[Any], last: int) -> Iterator[Any]:
    """Yield packets in storage order up to the frame shown at `last`, with all that the frames before need."""
    tail: list[Any] = []
    later = 0  # packets in `tail` that are shown after `last`
    for packet in packets:
        tail.append(packet)
        later += packet.pts > last
        if not later:
            yield from tail
            tail = []
        elif later > 2 * REORDERED:
            break
    yield from tail[: _count_whole([packet.pts for packet in tail], last)]


def _count_whole(times: list[int], last: int) -> int:
    """Return how many packets of a tail hold all frames up to `last`, and all before each of their own.

    >>> _count_whole([4, 2, 1, 3, 8, 6], 2), _count_whole([4, 2, 1, 3, 8, 6], 0)
    (4, 0)
    """
    count = 0
    while (more := max((i + 1 for i, time in enumerate(times) if time <= last), default=0)) > count:
        count, last = more, max(last, *times[:more])
    return count
