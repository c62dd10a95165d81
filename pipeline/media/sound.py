"""Each frame's share of the sound: what is heard from its time until the next kept frame's.

Sound is read beside the pictures from a second handle on the file, as far as the next frame needs and no further, so
that a film's sound never lies in memory as a whole. It is mixed to mono and resampled once for the file, or for a
segment of it from a little before its first frame on; all slices together are the file's sound. Where time stamps leave
a hole (lost packets), silence keeps sound and pictures together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from math import gcd
from typing import Any

import av
import numpy as np

from pipeline.columns import SOUND_RATE
from pipeline.media.container import chosen, open_container
from pipeline.media.frames import Frame, Lost, Sound
from pipeline.media.sniff import Kind
from pipeline.media.store import Media, open_media

_MOST_SAMPLES = 600 * SOUND_RATE  # of one slice, 19 MB: all that a lone picture over an hour of music keeps
_HOLE_S = 0.015  # time stamps win over the count of samples from this gap on: a lost piece of Opus is 20 ms, of AAC 21
_LEAD_S = 0.5  # decoders and resampler are given so much before the moment that counts: 22 packets of AAC, 25 of Opus
_NONE: Sound = np.zeros(0, np.int16)


def with_sound(
    frames: Iterator[Frame | Lost], open_track: Callable[[], SoundTrack], ends: tuple[int, float] | None = None
) -> Iterator[Frame | Lost]:
    """The same frames with their slices; the first has all sound before it too, the last all that is left.

    Args:
        frames: of a film, or of a segment and then of the next ones, for as long as they are asked for.
        open_track: called once the first frame is there.
        ends: number and time of the frame with which the segment's sound ends, whether or not it is there; None at
            the end of the film.
    """
    track: SoundTrack | None = None
    held: Frame | None = None
    for item in frames:
        if isinstance(item, Lost):
            yield item
            continue
        track = track or open_track()
        if held is not None:
            inside = ends is not None and held.index < ends[0] <= item.index
            yield replace(held, sound=track.until(ends[1] if ends and inside else item.time_s))
        held = item
    if held is not None and track:
        yield replace(held, sound=track.until(ends[1] if ends and held.index < ends[0] else None))


class SoundTrack:
    """The default sound track of a file, read from its start, or a moment, to its end.

    Args:
        media: the file.
        kind: what `sniff` said of it.
        origin_s: the first picture's time on the clock of the container.
        begins_s: the moment, counted from the first picture. What is heard from then on is the same, to the sample,
            where the track has no holes and its codec no memory longer than _LEAD_S (of AAC, what it calls noise has).
    """

    def __init__(self, media: Media, kind: Kind, origin_s: float, begins_s: float | None = None) -> None:
        mixed = _Mixed(media, kind)
        self._exists = mixed.start_s is not None
        self._ahead_s = origin_s - (mixed.start_s or 0.0)  # what is heard before the first picture
        self._taken = 0 if begins_s is None else max(0, round((begins_s + self._ahead_s) * SOUND_RATE))
        self._chunks, self._rest = mixed.samples(self._taken), _NONE

    def until(self, time_s: float | None) -> Sound | None:
        """What has not been taken of the sound before a time, counted from the first picture; all the rest for None.

        None where the file has no sound. At most ten minutes, the rest up to that time is left out.
        """
        if not self._exists:
            return None
        missing = None if time_s is None else round((time_s + self._ahead_s) * SOUND_RATE) - self._taken
        parts, room = [_NONE], _MOST_SAMPLES
        while (room > 0) if missing is None else (missing > 0):
            if not len(self._rest):
                piece = next(self._chunks, None)
                if piece is None:
                    break
                self._rest = piece
            part, self._rest = self._rest[:missing], self._rest[missing:] if missing else _NONE
            self._taken += len(part)
            missing = None if missing is None else missing - len(part)
            parts.append(part[:room])
            room -= len(parts[-1])
        return np.concatenate(parts)


class _Mixed:
    """A file's sound, mono and resampled; ends at what is unreadable."""

    def __init__(self, media: Media, kind: Kind) -> None:
        self._stream = open_media(media)
        self._container = open_container(self._stream, kind, 0)
        tracks = [track for track in self._container.streams.audio if track.codec_context is not None]
        self._track = chosen(tracks) if tracks else None
        pieces = self._decoded()
        first = next(pieces, None)
        self._pieces = chain([first], pieces) if first else pieces
        self._rate = first.sample_rate if first else SOUND_RATE
        self.start_s = float(first.time or 0.0) if first else None  # of the first sample; None where there is none

    def samples(self, number: int) -> Iterator[Sound]:
        """What is heard from one sample on, counted from the first, in pieces. Closes the file at the end."""
        with self._stream, self._container:
            begin = self._begin(number)
            extra = number - begin * SOUND_RATE // self._rate
            for piece in self._resampled(begin) if self.start_s is not None else ():
                yield piece[extra:]
                extra = max(0, extra - len(piece))

    def _begin(self, number: int) -> int:
        """Go to a stored sample a little before a resampled one; from there on as many come out as from the start."""
        period = self._rate // gcd(self._rate, SOUND_RATE)
        begin = int(number * self._rate / SOUND_RATE - _LEAD_S * self._rate) // period * period
        if begin <= 0 or self._track is None or self.start_s is None:
            return 0
        moment = self.start_s + begin / self._rate - _LEAD_S
        self._container.seek(max(0, int(moment / self._track.time_base)), stream=self._track)
        self._pieces = self._from(begin)
        return begin

    def _from(self, begin: int) -> Iterator[av.AudioFrame]:
        """Decoded pieces from one stored sample on."""
        for piece in self._decoded():
            at = begin if piece.time is None else round((piece.time - (self.start_s or 0.0)) * self._rate)
            if at >= begin:
                yield piece
            elif at + piece.samples > begin:
                yield _tail(piece, begin - at)

    def _resampled(self, begin: int) -> Iterator[Sound]:
        heard_s = (self.start_s or 0.0) + begin / self._rate
        mixer = _mixer()
        for piece in self._pieces:
            now = heard_s if piece.time is None else piece.time
            if now - heard_s > _HOLE_S:
                yield np.zeros(min(round((now - heard_s) * SOUND_RATE), _MOST_SAMPLES), np.int16)
                heard_s = now
            heard_s += piece.samples / piece.sample_rate
            try:
                mixed = mixer.resample(piece)
            except ValueError:  # the track goes on with other channels or another rate
                mixed, mixer = mixer.resample(None), _mixer()
                mixed += mixer.resample(piece)
            for part in mixed:
                yield part.to_ndarray()[0]
        for part in mixer.resample(None):
            yield part.to_ndarray()[0]

    def _decoded(self) -> Iterator[av.AudioFrame]:
        if self._track is None:
            return
        try:
            for packet in self._container.demux(self._track):
                try:
                    yield from packet.decode()
                except av.FFmpegError:
                    continue  # silence takes its place
        except (av.FFmpegError, OSError):
            return


def _mixer() -> Any:
    return av.AudioResampler(format="s16", layout="mono", rate=SOUND_RATE)


def _tail(piece: av.AudioFrame, begin: int) -> av.AudioFrame:
    """A piece without its first samples."""
    width = 1 if piece.format.is_planar else piece.layout.nb_channels
    values: Any = np.ascontiguousarray(piece.to_ndarray()[:, begin * width :])
    rest = av.AudioFrame.from_ndarray(values, format=piece.format.name, layout=piece.layout.name)
    rest.sample_rate, rest.time_base = piece.sample_rate, Fraction(1, piece.sample_rate)
    rest.pts = round(piece.time * piece.sample_rate) + begin if piece.time is not None else None
    return rest
