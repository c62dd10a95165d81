"""Packets of a part of a film as they are stored, so that nothing is encoded again.

The part begins at a key frame, and ends where no frame is missing among those before. Frames that are stored after the
key frame and shown before it (open GOPs) refer to frames that the part lacks, and are left out.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.video.film_span import FilmSpan
from framekiln.media.video.segments import REORDERED


class CopiedSpan:
    """The packets of an open film's span, from the last key frame at or before its first frame."""

    def __init__(self, film: FilmSpan) -> None:
        self._film = film
        self._packets = up_to(from_key(film.packets(), film.first), film.last)
        self._first = next(self._packets, None)
        if self._first is None:
            raise MediaError(Reason.CORRUPT, "it has no key frame at the first frame of the clip or before")
        self.start: int = self._first.pts  # ticks of the key frame
        self.frames = 0  # packets so far

    def video(self) -> Iterator[Any]:
        """Yield the packets of the video, from time 0 on."""
        packet = self._first
        while packet is not None:
            self.frames += 1
            packet.pts -= self.start
            packet.dts = None if packet.dts is None else packet.dts - self.start
            yield packet
            packet = next(self._packets, None)

    def sound(self, track: Any) -> Iterator[Any]:
        """Yield the packets of a track of sound that begin inside the span, on the same clock."""
        start_s = float(self.start * self._film.base)
        start = round(start_s / track.time_base)
        for packet in self._film.sound_packets(track, start_s):
            if packet.pts * packet.time_base >= self._film.stop_s:
                return
            if packet.pts >= start:
                packet.pts, packet.dts = packet.pts - start, None if packet.dts is None else packet.dts - start
                yield packet


def from_key(packets: Iterable[Any], first: int) -> Iterator[Any]:
    """Yield packets in order of storage, from the last key frame shown at `first` or before, without leading frames.

    Raises MediaError: a packet has no time.
    """
    held: list[Any] = []
    later = 0  # packets shown after `first`, of those held
    for packet in packets:
        if packet.pts is None:
            raise MediaError(Reason.UNSUPPORTED, "its packets have no times; cut it exactly")
        if later > REORDERED:  # no packet further on is shown at `first` or before
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
    """Yield packets in order of storage up to the frame shown at `last`, and those without which frames are missing."""
    tail: list[Any] = []
    later = 0  # packets shown after `last`, of those in the tail
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
