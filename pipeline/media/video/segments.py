"""Segments of a long film, decoded by several tasks at once without knowledge of each other.

A segment begins at a closed-GOP key frame: frames stored before it are shown before it, and frames stored after it are
shown after it. A decoder can start there, and as many frames are shown before it as are stored before it. So frames are
numbered from the container's index alone. The cuts depend only on the file: a share of the video track's bytes begins
its segment at the first such frame inside it, and a share without one belongs to the segment before.

Segments need an MP4 or MOV with a complete index; other containers list only key frames, or nothing. Frame numbers are
unknown in advance if an edit list hides frames, or if the film begins with another kind of frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

INDEXED = "mov"  # libav's name of MP4 and MOV, the one format with an index of all frames
REORDERED = 16  # frames that a decoder may delay (H.264, A.3.1 h; H.265, A.4.2), stored before one shown earlier


@dataclass(frozen=True, kw_only=True)
class Share:
    """The requested part of a file."""

    index: int = 0
    count: int = 1
    halo: int = 0  # frames to read beyond its end


@dataclass(frozen=True, kw_only=True)
class VideoSegment:
    """The frames of a film from one closed-GOP key frame to another."""

    start: int  # number of its first frame
    stop: int  # number of the frame after its last
    total: int  # frames of the film
    origin: int  # time of the film's first frame, in the file's units, as all times here
    begins: int | None  # time of its first kept frame; None at the start of the film, or if there is none
    ends: tuple[int, int] | None  # number and time of the first kept frame after it; None if there is none
    share: float  # fraction of the video track's bytes
    first_packet: Any  # of the film, for decoders that start later: it identifies the encoder
    packets: Iterator[Any]  # of the track, from the segment's first one to the end of the file

    @property
    def is_last(self) -> bool:
        """True for the last segment of the film."""
        return self.stop == self.total


def locate(container: Any, track: Any, share: Share, every_nth: int) -> VideoSegment | None:
    """Seek to a share's segment and return it; None if the film is not read in segments.

    This reads the packets of a few key frames and those after them, without decoding. A share without a start of its
    own has an empty segment (`start == stop`).

    Args:
        container: an open film of the format INDEXED.
        track: its video track.
        share: number of the share, and number of shares.
        every_nth: kept frames have numbers that are multiples of it.
    """
    index = _Index(container, track)
    if not index.usable:
        return None
    start, stop = index.segment_start(share.index, share.count), index.total
    for later in range(share.index + 1, share.count):
        if start is not None and (next_start := index.segment_start(later, share.count)) is not None:
            stop = next_start
            break
    start = stop if start is None else start
    origin, first, after = index.shown_at(0, 0), _multiple(start, every_nth), _multiple(stop, every_nth)
    return VideoSegment(
        start=start,
        stop=stop,
        total=index.total,
        origin=origin,
        begins=index.shown_at(start, first) if start > 0 and first < stop else None,
        ends=(after, index.shown_at(stop, after)) if start < stop and after < index.total else None,
        share=index.bytes_between(start, stop),
        first_packet=next(index.packets(0)),
        packets=index.packets(start) if start < stop else iter(()),
    )


def _multiple(number: int, of: int) -> int:
    return -(-number // of) * of


class _Index:
    """A track's packets by the container's index, in order of storage."""

    def __init__(self, container: Any, track: Any) -> None:
        self._container, self._track = container, track
        entries = list(track.index_entries) if track.frames else []
        self.total = len(entries)
        self._times = [entry.timestamp for entry in entries]  # of decoding
        self._places = [entry.pos for entry in entries]
        self._keys = np.flatnonzero([entry.is_keyframe for entry in entries])
        self._ends = np.cumsum([entry.size for entry in entries])
        self._delay = 0  # from decoding to presentation time of the last key frame read
        listed = self.total == track.frames > 0 and not any(entry.is_discard for entry in entries)
        rising = bool(np.all(np.diff(self._times) > 0))
        self.usable = listed and rising and bool(self._ends[-1]) and self._starts_closed_gop(0)

    def bytes_between(self, start: int, stop: int) -> float:
        """Return the fraction of the track's bytes between two packets."""
        edges = [0, *self._ends[[start - 1, stop - 1]].tolist()] if start else [0, 0, int(self._ends[stop - 1])]
        return float((edges[2] - edges[1]) / self._ends[-1]) if start < stop else 0.0

    def segment_start(self, share: int, shares: int) -> int | None:
        """Return the number of the first frame in a share at which a segment can begin."""
        if not share:
            return 0
        before = np.concatenate([[0], self._ends[:-1]])[self._keys] * shares
        inside = (before >= self._ends[-1] * share) & (before < self._ends[-1] * (share + 1))
        return next((key for key in self._keys[inside].tolist() if self._starts_closed_gop(key)), None)

    def packets(self, number: int) -> Iterator[Any]:
        """Yield packets from a key frame on; none if libav cannot seek to it.

        libav seeks by presentation time, which the index lacks: it is a few frames later than decoding time.
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

    def shown_at(self, start: int, number: int) -> int:
        """Return the presentation time of a frame in the segment that begins at `start`, or after it."""
        place = number - start
        packets = islice(self.packets(start), place + 1 + REORDERED)
        times = sorted(packet.pts for packet in packets if packet.size and packet.pts is not None)
        return int(times[place] if place < len(times) else self._times[number] + self._delay)

    def _starts_closed_gop(self, number: int) -> bool:
        """Return whether a key frame precedes all frames stored after it, and they need none from before it."""
        packets = islice(self.packets(number), REORDERED + 2)
        # the index marks key frames; libav clears the mark of a damaged packet
        first = next(packets, None)
        if first is None or first.pts is None or not _refreshes(first, self._track):
            return False
        return all(packet.pts is not None and packet.pts > first.pts for packet in packets if packet.size)


def _refreshes(packet: Any, track: Any) -> bool:
    """Return whether a packet marked as a key frame is one, and not the start of a gradual refresh.

    A gradual refresh has slices of other types. Other streams than those of ISO/IEC 14496-15, and damaged packets,
    count as key frames.
    """
    context = track.codec_context
    if context.name not in _SLICES or not context.extradata:
        return True
    at_size, shift, mask, slices, refreshing = _SLICES[context.name]
    width = (context.extradata[at_size] & 3) + 1 if len(context.extradata) > at_size else 4
    data, at, types = bytes(packet), 0, set()
    while at + width < len(data) and (length := int.from_bytes(data[at : at + width], "big")):
        types.add(data[at + width] >> shift & mask)
        at += width + length
    return not types & slices or bool(types & refreshing)


# by codec: offset in extradata of (bytes of a length - 1), shift and mask of the type in a unit's first byte, types of
# all slices, and types of slices that need nothing before them (H.264, table 7-1: IDR; H.265, table 7-1: IRAP)
_SLICES = {
    "h264": (4, 0, 0x1F, frozenset(range(1, 6)), frozenset({5})),
    "hevc": (21, 1, 0x3F, frozenset(range(32)), frozenset(range(16, 24))),
}
