"""Clips cut out of films into files of their own, with their sound.

A copied clip has the film's packets and begins at a key frame. An exact one is encoded again. Whoever trains on video
wants many files of seconds, and loaders that read them from their first frame.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.files import MediaFile
from framekiln.media.video.container import error_text
from framekiln.media.video.copied_span import CopiedSpan
from framekiln.media.video.encoded_span import EncodedSpan
from framekiln.media.video.film_span import FilmSpan, Span

# Codecs that players and loaders expect in an MP4; films with others are copied into Matroska, which holds any.
_IN_MP4 = {"h264", "hevc", "av1", "mpeg4", "vp9", "aac", "mp3", "ac3", "eac3", "alac", "opus", "flac"}
SUFFIXES = (".mp4", ".mkv")


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A file that was cut out of a film."""

    path: Path
    frames: int
    start_s: float  # of its first frame, from the film's first one
    has_sound: bool


def cut(media: MediaFile, span: Span, path: Path, *, exact: bool) -> Clip:
    """Write a part of a film into a file of its own.

    Args:
        media: the film.
        span: its frames.
        path: of the file, without its ending.
        exact: encode the frames again, from the first to the last one. Otherwise packets are copied: from the last key
            frame at or before the first frame, and up to fewer than 16 frames after the last.

    Raises:
        MediaError: the film cannot be read there, or its packets cannot be copied.
        OSError: the file cannot be written.
    """
    with FilmSpan(media, span) as film:
        sound = film.open_sound()
        codecs = {track.codec_context.codec.canonical_name for track in (film.track, sound) if track is not None}
        path = path.with_name(path.name + SUFFIXES[not (exact or codecs <= _IN_MP4)])
        with av.open(str(path), "w", options={"movflags": "+faststart"} if path.suffix == ".mp4" else {}) as out:
            part = _encode(film, out, sound) if exact else _copy(film, out, sound)
        return Clip(path=path, frames=part.frames, start_s=film.seconds(part.start), has_sound=sound is not None)


def _encode(film: FilmSpan, out: Any, sound: Any) -> EncodedSpan:
    with film.errors():
        part = EncodedSpan(film, out, sound)
    for packet in _merge(film, part.video(), part.sound()):
        out.mux(packet)
    return part


def _copy(film: FilmSpan, out: Any, sound: Any) -> CopiedSpan:
    with film.errors():
        part = CopiedSpan(film)
    video = out.add_stream_from_template(film.track)
    if aspect := film.track.sample_aspect_ratio:  # the container's own is not in the template
        video.codec_context.sample_aspect_ratio = aspect
    copies = [_set_stream(part.video(), video)]
    if sound is not None:
        copies.append(_set_stream(part.sound(sound), out.add_stream_from_template(sound)))
    try:
        for packet in _merge(film, *copies):
            out.mux(packet)
    except (av.error.ArgumentError, av.error.InvalidDataError) as exc:
        message = f"its packets cannot be copied ({error_text(exc)}); cut it exactly"
        raise MediaError(Reason.UNSUPPORTED, message) from exc
    return part


def _set_stream(packets: Iterator[Any], stream: Any) -> Iterator[Any]:
    for packet in packets:
        packet.stream = stream
        yield packet


def _merge(film: FilmSpan, *tracks: Iterator[Any]) -> Iterator[Any]:
    """Yield the packets of all tracks by their time of storage. Raises MediaError: the film cannot be read."""
    with film.errors():
        yield from heapq.merge(*tracks, key=_read_time)


def _read_time(packet: Any) -> float:
    return float((packet.pts if packet.dts is None else packet.dts) * packet.time_base)
