"""Each frame's share of the sound: what is heard from its time until the next kept frame's.

Sound is read beside the pictures from a second handle on the file, as far as the next frame needs and no further, so
that a film's sound never lies in memory as a whole. It is mixed to mono and resampled once for the file; all slices
together are the file's sound. Where time stamps leave a hole (lost packets), silence keeps sound and pictures
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
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
_NONE: Sound = np.zeros(0, np.int16)


def with_sound(frames: Iterator[Frame | Lost], open_track: Callable[[], SoundTrack]) -> Iterator[Frame | Lost]:
    """The same frames with their slices; the first has all sound before it too, the last all that is left.

    `open_track` is called once the first frame is there.
    """
    track: SoundTrack | None = None
    held: Frame | None = None
    for item in frames:
        if isinstance(item, Lost):
            yield item
            continue
        track = track or open_track()
        if held is not None:
            yield replace(held, sound=track.until(item.time_s))
        held = item
    if held is not None and track:
        yield replace(held, sound=track.until(None))


class SoundTrack:
    """The default sound track of a file, read from its start to its end.

    Args:
        media: the file.
        kind: what `sniff` said of it.
        origin_s: the first picture's time on the clock of the container.
    """

    def __init__(self, media: Media, kind: Kind, origin_s: float) -> None:
        self._chunks = _resampled(media, kind)
        start_s, self._rest = next(self._chunks, (None, _NONE))
        self._exists = start_s is not None
        self._ahead_s = origin_s - (start_s or 0.0)  # what is heard before the first picture
        self._taken = 0

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
                start_s, self._rest = next(self._chunks, (None, _NONE))
                if start_s is None:
                    break
            part, self._rest = self._rest[:missing], self._rest[missing:] if missing else _NONE
            self._taken += len(part)
            missing = None if missing is None else missing - len(part)
            parts.append(part[:room])
            room -= len(parts[-1])
        return np.concatenate(parts)


def _resampled(media: Media, kind: Kind) -> Iterator[tuple[float, Sound]]:
    """Pieces of the sound, mono and resampled, each with the time of the first sample; ends at what is unreadable."""
    with open_media(media) as stream, open_container(stream, kind, 0) as container:
        start_s: float | None = None
        heard_s = 0.0
        mixer = _mixer()
        for piece in _pieces(container):
            now = heard_s if piece.time is None else piece.time
            if start_s is None:
                start_s = heard_s = now
            if now - heard_s > _HOLE_S:
                yield start_s, np.zeros(min(round((now - heard_s) * SOUND_RATE), _MOST_SAMPLES), np.int16)
                heard_s = now
            heard_s += piece.samples / piece.sample_rate
            try:
                mixed = mixer.resample(piece)
            except ValueError:  # the track goes on with other channels or another rate
                mixed, mixer = mixer.resample(None), _mixer()
                mixed += mixer.resample(piece)
            for part in mixed:
                yield start_s, part.to_ndarray()[0]
        for part in mixer.resample(None) if start_s is not None else ():
            yield start_s or 0.0, part.to_ndarray()[0]


def _mixer() -> Any:
    return av.AudioResampler(format="s16", layout="mono", rate=SOUND_RATE)


def _pieces(container: Any) -> Iterator[av.AudioFrame]:
    tracks = [track for track in container.streams.audio if track.codec_context is not None]
    if not tracks:
        return
    track = chosen(tracks)
    try:
        for packet in container.demux(track):
            try:
                yield from packet.decode()
            except av.FFmpegError:
                continue  # silence takes its place
    except (av.FFmpegError, OSError):
        return
