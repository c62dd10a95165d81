"""Where a long film is cut, so that several tasks decode it at once and each finds its part without the others.

A segment begins at a key frame of which all that is stored before it is shown before it, and after it after it. There a
decoder may begin anew, and as many frames are shown before it as are stored before it; so frames are numbered from the
container's index alone. The rule looks at the file and at nothing else: its n-th share of the picture track's bytes
begins at the first such frame inside it; a share without one belongs to the segment before.

Read in segments are MP4 and MOV whose index is whole. Other containers list key frames only, or nothing. Of films
whose edit list hides frames, or that do not begin with such a frame, numbers cannot be known ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

INDEXED = "mov"  # libav's name of the one format with an index of all frames: MP4 and MOV
REORDERED = 16  # frames that a decoder may hold back (H.264, A.3.1 h; H.265, A.4.2), stored before one shown earlier


@dataclass(frozen=True, kw_only=True)
class Share:
    """Which part of a file is asked for."""

    index: int = 0
    count: int = 1
    halo: int = 0  # frames to be read beyond its end


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Frames of a film from one place where a decoder may begin to the next."""

    start: int  # number of its first frame
    stop: int  # number of the frame after its last
    total: int  # frames of the film
    origin: int  # time of the film's first frame, in the file's units, as all times here
    begins: int | None  # time of the first frame kept in it; None where it begins the film, or there is none
    ends: tuple[int, int] | None  # number and time of the first frame kept after it; None where there is none
    share: float  # of the picture track's bytes
    opening: Any  # the film's first packet, for a decoder that begins later: encoders say there what they are
    packets: Iterator[Any]  # of the track, from its first one on, to the end of the file

    @property
    def is_last(self) -> bool:
        """Whether the film ends with it."""
        return self.stop == self.total


def locate(container: Any, track: Any, share: Share, every_nth: int) -> Segment | None:
    """A share's segment, where decoding of `container` now stands; None where the film is not read in segments.

    Packets are read, of a few key frames and those after them, and nothing is decoded. A share in which no segment
    begins has an empty one (`start == stop`).

    Args:
        container: an open film of the format INDEXED.
        track: its picture track.
        share: the number of the share, and of how many.
        every_nth: of which numbers frames are kept.
    """
    index = _Index(container, track)
    if not index.whole:
        return None
    start, stop = index.begin(share.index, share.count), index.total
    for later in range(share.index + 1, share.count):
        if start is not None and (found := index.begin(later, share.count)) is not None:
            stop = found
            break
    start = stop if start is None else start
    origin, first, after = index.shown(0, 0), _multiple(start, every_nth), _multiple(stop, every_nth)
    return Segment(
        start=start,
        stop=stop,
        total=index.total,
        origin=origin,
        begins=index.shown(start, first) if start > 0 and first < stop else None,
        ends=(after, index.shown(stop, after)) if start < stop and after < index.total else None,
        share=index.bytes_between(start, stop),
        opening=next(index.packets(0)),
        packets=index.packets(start) if start < stop else iter(()),
    )


def _multiple(number: int, of: int) -> int:
    return -(-number // of) * of


class _Index:
    """A track's packets as its container lists them, in the order of storage."""

    def __init__(self, container: Any, track: Any) -> None:
        self._container, self._track = container, track
        entries = list(track.index_entries) if track.frames else []
        self.total = len(entries)
        self._times = [entry.timestamp for entry in entries]  # of decoding
        self._places = [entry.pos for entry in entries]
        self._keys = np.flatnonzero([entry.is_keyframe for entry in entries])
        self._ends = np.cumsum([entry.size for entry in entries])
        self._delay = 0  # from a key frame's time of decoding to that of showing, where it was last seen
        listed = self.total == track.frames > 0 and not any(entry.is_discard for entry in entries)
        rising = bool(np.all(np.diff(self._times) > 0))
        self.whole = listed and rising and bool(self._ends[-1]) and self._opens(0)

    def bytes_between(self, start: int, stop: int) -> float:
        """The share of the track's bytes that lies between two packets."""
        edges = [0, *self._ends[[start - 1, stop - 1]].tolist()] if start else [0, 0, int(self._ends[stop - 1])]
        return float((edges[2] - edges[1]) / self._ends[-1]) if start < stop else 0.0

    def begin(self, share: int, shares: int) -> int | None:
        """Number of the first frame in a share at which a segment may begin."""
        if not share:
            return 0
        before = np.concatenate([[0], self._ends[:-1]])[self._keys] * shares
        inside = (before >= self._ends[-1] * share) & (before < self._ends[-1] * (share + 1))
        return next((key for key in self._keys[inside].tolist() if self._opens(key)), None)

    def packets(self, number: int) -> Iterator[Any]:
        """Packets from one on, which must be a key frame; none where libav does not find the way to it.

        libav seeks by the time of showing, which the index lacks: it is later than that of decoding, by a few frames.
        """
        later = (self._times[at] - self._times[number] for at in range(number, min(number + REORDERED, self.total)))
        for delay in (self._delay, *later):
            self._container.seek(self._times[number] + delay, stream=self._track)
            packets = self._container.demux(self._track)
            first = next(packets, None)
            if first is not None and (first.dts, first.pos) == (self._times[number], self._places[number]):
                self._delay = (first.pts or 0) - first.dts
                return chain([first], packets)
        return iter(())

    def shown(self, start: int, number: int) -> int:
        """The time of showing of a frame, not before `start`, at which a segment begins."""
        place = number - start
        packets = islice(self.packets(start), place + 1 + REORDERED)
        times = sorted(packet.pts for packet in packets if packet.size and packet.pts is not None)
        return int(times[place] if place < len(times) else self._times[number] + self._delay)

    def _opens(self, number: int) -> bool:
        """Whether a key frame is shown before all that is stored after it, which needs nothing that is before."""
        packets = islice(self.packets(number), REORDERED + 2)
        # that it is a key frame, the index says; libav takes the mark from a packet that is damaged
        first = next(packets, None)
        if first is None or first.pts is None or not _refreshes(first, self._track):
            return False
        return all(packet.pts is not None and packet.pts > first.pts for packet in packets if packet.size)


def _refreshes(packet: Any, track: Any) -> bool:
    """False where a packet that the container marks as a key frame begins a gradual refresh: slices of other types.

    What is no such stream (ISO/IEC 14496-15), or damaged, is believed.
    """
    context = track.codec_context
    if context.name not in _SLICES or not context.extradata:
        return True
    at_size, shift, mask, slices, refreshing = _SLICES[context.name]
    width = (context.extradata[at_size] & 3) + 1 if len(context.extradata) > at_size else 4
    data, at, seen = bytes(packet), 0, set()
    while at + width < len(data) and (length := int.from_bytes(data[at : at + width], "big")):
        seen.add(data[at + width] >> shift & mask)
        at += width + length
    return not seen & slices or bool(seen & refreshing)


# by codec: where extradata hold the bytes of a length less one, the type's place in a unit's first byte, types of all
# slices, and of those that need nothing before them (H.264, table 7-1: IDR; H.265, table 7-1: IRAP)
_SLICES = {
    "h264": (4, 0, 0x1F, frozenset(range(1, 6)), frozenset({5})),
    "hevc": (21, 1, 0x3F, frozenset(range(32)), frozenset(range(16, 24))),
}
