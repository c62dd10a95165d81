"""Sound of each frame: from its time until that of the next kept frame.

Sound is read beside the video through a second handle on the file, only as far as the next frame needs. So memory never
holds a video's whole sound. It is mixed to mono (`channel_mix`) and resampled, once for the file, or for a segment from
shortly before its first frame. All slices together are the file's sound. Gaps in the time stamps (lost packets) become
silence, and overlaps are cut, which keeps sound and video in sync.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any

import av
import numpy as np

from framekiln.contract.columns import SOUND_RATE
from framekiln.media.file_types import Kind
from framekiln.media.files import MediaFile
from framekiln.media.frames import Frame, LostFrames, Sound
from framekiln.media.video.channel_mix import MIN_GAP_S, ChannelReader, mixed_to_mono
from framekiln.media.video.container import default_track, has_content, open_container, open_film

_MAX_SAMPLES = 600 * SOUND_RATE  # samples of one slice, 19 MB: even for a single frame with an hour of music
_SILENT_S = 60.0  # s of silence after which another track is preferred
_SILENT_POWER = 1e-7  # -70 dB of full scale: above the noise of dithered 16 bits, -93 dB, and below any voice
_MOST_TWICE_S = 1.0  # s of sound before the end of the last piece; earlier sound has a restarted clock
_LEAD_S = 0.5  # s given to decoder and resampler before the first needed sample: 22 packets of AAC, 25 of Opus
_NONE: Sound = np.zeros(0, np.int16)


def with_sound(
    frames: Iterator[Frame | LostFrames], open_track: "Callable[[], SoundTrack]", ends: tuple[int, float] | None
) -> Iterator[Frame | LostFrames]:
    """Yield the same frames with their sound; the first includes all sound before it, the last all after it.

    A segment's frames are followed by the next segment's; its sound `ends` at the frame with this number and time, lost
    or not. The track is opened at the first frame.
    """
    track: SoundTrack | None = None
    previous: Frame | None = None
    for item in frames:
        if isinstance(item, LostFrames):
            yield item
            continue
        track = track or open_track()
        if previous is not None:
            inside = ends is not None and previous.index < ends[0] <= item.index
            yield replace(previous, sound=track.until(ends[1] if ends and inside else item.time_s))
        previous = item
    if previous is not None and track:
        yield replace(previous, sound=track.until(ends[1] if ends and previous.index < ends[0] else None))


class SoundTrack:
    """The default sound track of a file, from its start, or from `begins_s` after the first frame, to its end.

    `origin_s` is the first frame's time on the clock of the container. The samples from a start on are identical if the
    track has no gaps and its codec no memory longer than _LEAD_S (the noise of AAC has).
    """

    def __init__(self, media: MediaFile, kind: Kind, origin_s: float, begins_s: float | None = None) -> None:
        mixed = _Mixed(media, kind)
        self._exists = mixed.start_s is not None
        self._lead_s = origin_s - (mixed.start_s or 0.0)  # sound before the first frame
        self._taken = 0 if begins_s is None else max(0, round((begins_s + self._lead_s) * SOUND_RATE))
        self._chunks, self._rest = mixed.samples(self._taken), _NONE

    def until(self, time_s: float | None) -> Sound | None:
        """Return the sound since the last call up to a time, counted from the first frame; None: all the rest.

        Return None if the file has no sound. Sound beyond ten minutes up to that time is dropped.
        """
        if not self._exists:
            return None
        missing = None if time_s is None else round((time_s + self._lead_s) * SOUND_RATE) - self._taken
        parts, room = [_NONE], _MAX_SAMPLES
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
    """A file's sound, mono and resampled, up to its first unreadable part."""

    def __init__(self, media: MediaFile, kind: Kind) -> None:
        self._stream = open_film(media, kind)
        self._container = open_container(self._stream, kind, 0)
        tracks = [track for track in self._container.streams.audio if track.codec_context is not None]
        self._track = _choose_track(media, kind, tracks)
        pieces = self._decode()
        first = next(pieces, None)
        self._pieces = chain([first], pieces) if first else pieces
        self._rate = first.sample_rate if first else SOUND_RATE
        self.start_s = float(first.time or 0.0) if first else None  # time of the first sample; None if there is none

    def samples(self, number: int) -> Iterator[Sound]:
        """Yield the resampled sound from a sample on, in pieces. Closes the file at the end."""
        with self._stream, self._container:
            begin = self._seek_before(number)
            extra = number - begin * SOUND_RATE // self._rate
            for piece in self._resample(begin) if self.start_s is not None else ():
                yield piece[extra:]
                extra = max(0, extra - len(piece))

    def _seek_before(self, number: int) -> int:
        """Seek to a stored sample before a resampled one, at a whole second of the track; return its number.

        A whole second is a period of both rates, and channels are mixed by seconds.
        """
        begin = int(number / SOUND_RATE - _LEAD_S) * self._rate
        if begin <= 0 or self._track is None or self.start_s is None:
            return 0
        time_s = self.start_s + begin / self._rate - _LEAD_S
        self._container.seek(max(0, int(time_s / self._track.time_base)), stream=self._track)
        self._pieces = self._read_from(begin)
        return begin

    def _read_from(self, begin: int) -> Iterator[av.AudioFrame]:
        for piece in self._decode():
            at = begin if piece.time is None else round((piece.time - (self.start_s or 0.0)) * self._rate)
            if at >= begin:
                yield piece
            elif at + piece.samples > begin:
                yield _cut_start(piece, begin - at)

    def _resample(self, begin: int) -> Iterator[Sound]:
        end_s = (self.start_s or 0.0) + begin / self._rate
        mixer = _make_mixer()
        for piece in mixed_to_mono(self._pieces, self.start_s or 0.0):
            now = end_s if piece.time is None else piece.time
            if now - end_s > MIN_GAP_S:
                yield np.zeros(min(round((now - end_s) * SOUND_RATE), _MAX_SAMPLES), np.int16)
                end_s = now
            twice = round((end_s - now) * piece.sample_rate)  # samples, if time stamps run slow
            twice = twice if MIN_GAP_S < twice / piece.sample_rate < _MOST_TWICE_S else 0
            if twice >= piece.samples:
                continue
            rest = _cut_start(piece, twice) if twice else piece
            end_s += rest.samples / piece.sample_rate
            try:
                mixed = mixer.resample(rest)
            except ValueError:  # the track continues with other channels or another rate
                mixed, mixer = mixer.resample(None), _make_mixer()
                mixed += mixer.resample(rest)
            for part in mixed:
                yield part.to_ndarray()[0]
        for part in mixer.resample(None):
            yield part.to_ndarray()[0]

    def _decode(self) -> Iterator[av.AudioFrame]:
        return _decode_track(self._container, self._track)


def _decode_track(container: Any, track: Any) -> Iterator[av.AudioFrame]:
    """Yield the pieces of a track (None: no track) up to an unreadable part."""
    if track is None:
        return
    try:
        for packet in filter(has_content, container.demux(track)):
            try:
                yield from packet.decode()
            except av.FFmpegError:
                continue  # becomes silence
    except (av.FFmpegError, OSError):
        return


def _choose_track(media: MediaFile, kind: Kind, tracks: Sequence[Any]) -> Any:
    """Return the track that players use, or if it begins with silence the next one with any sound."""
    rest = list(tracks)
    order = [rest.pop(rest.index(default_track(rest))) for _ in tracks]
    audible = (track for track in order if len(order) == 1 or _is_audible(media, kind, track.index))
    return next(audible, order[0] if order else None)


def _is_audible(media: MediaFile, kind: Kind, index: int) -> bool:
    with open_film(media, kind) as stream, open_container(stream, kind, 0) as container:
        pieces = _decode_track(container, container.streams[index])
        seconds, reader = 0.0, ChannelReader()
        for piece in pieces:
            if piece.samples and np.square(reader.read(piece)).mean(axis=1).max() > _SILENT_POWER:
                return True
            seconds += piece.samples / piece.sample_rate
            if seconds > _SILENT_S:
                break
        return False


def _make_mixer() -> Any:
    return av.AudioResampler(format="s16", layout="mono", rate=SOUND_RATE)


def _cut_start(piece: av.AudioFrame, begin: int) -> av.AudioFrame:
    values: Any
    if piece.layout.nb_channels == 1:
        values, form = np.ascontiguousarray(piece.to_ndarray()[:, begin:]), piece.format.name
    else:
        values, form = np.ascontiguousarray(ChannelReader().read(piece)[:, begin:].T).reshape(1, -1), "flt"
    rest = av.AudioFrame.from_ndarray(values, format=form, layout=piece.layout)
    rest.sample_rate, rest.time_base = piece.sample_rate, Fraction(1, piece.sample_rate)
    rest.pts = round(piece.time * piece.sample_rate) + begin if piece.time is not None else None
    return rest
