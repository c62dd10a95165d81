"""Segments of a long film, decoded by several tasks at once without knowledge of each other.

A segment begins at a closed-GOP key frame: frames stored before it are shown before it, and frames stored after it are
shown after it. So a decoder can start there, and the number of frames before it is the same in both orders. Frames are
numbered from the container's index alone.

Segments begin on a grid of frame numbers: cuts depend only on the video. A task gets an equal part of the video track's
bytes, with all segments that begin there. Each is decoded by itself. So rows do not depend on the number of tasks, even
in a damaged video.

Segments need an MP4 or MOV with a complete index; other containers list only key frames, or nothing. Frame numbers are
unknown in advance if an edit list hides frames, or if the film begins with another kind of frame.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np

from framekiln.media.units import PacketIndex, Segments, VideoSegment

INDEXED = "mov"  # libav's name of MP4 and MOV, the one format with an index of all frames
REORDERED = 16  # frames that a decoder may delay (H.264, A.3.1 h; H.265, A.4.2), stored before one shown earlier


def locate(container: Any, track: Any, wanted: Segments, every_nth: int, least: int) -> VideoSegment | None:
    """Seek to the first of the wanted segments and return it; None if the video is not read in segments.

    This reads the packets of a few key frames and those after them, without decoding. Where no
    segment begins, it is an empty one (`start == stop`).

    The film is open and of the format INDEXED. Kept frames have numbers that are multiples of `every_nth`. `least` is
    the number of frames between the lines of the grid.
    """
    index = _Index(container, track, wanted.entries or PacketIndex.read(track))
    if wanted.entries is None and not index.is_usable():
        return None
    start, stop, more = index.segment(wanted, least)
    origin, first, after = index.shown_at(0, 0), _round_up(start, every_nth), _round_up(stop, every_nth)
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
        following=replace(wanted, begin=stop, entries=index.entries) if more else None,
    )


def _round_up(number: int, of: int) -> int:
    return -(-number // of) * of


class _Index:
    def __init__(self, container: Any, track: Any, entries: PacketIndex) -> None:
        self._container, self._track, self.entries = container, track, entries
        self.total = len(entries.times)
        self._times, self._places = entries.times.tolist(), entries.places.tolist()
        self._keys, self._ends = entries.keys, entries.ends
        self._delay = 0  # time from decoding to presentation of the last key frame read

    def is_usable(self) -> bool:
        return self.entries.is_complete and bool(self._ends[-1]) and self._starts_closed_gop(0)

    def segment(self, wanted: Segments, every: int) -> tuple[int, int, bool]:
        """Return start and stop of the first wanted segment, and whether another follows."""
        low, high = (self._ends[-1] * number for number in (wanted.index, wanted.index + 1))
        before = np.concatenate([[0], self._ends]) * wanted.count  # bytes before each frame, and all
        begin = wanted.begin
        if begin is None:
            first, after = np.searchsorted(before, (low, high)).tolist()
            begin = next(self._find_starts(first, after, every), after)
        if before[begin] >= high:
            return begin, begin, False
        stop = next(self._find_starts(begin + 1, self.total, every), self.total)
        return begin, stop, stop < self.total and bool(before[stop] < high)

    def _find_starts(self, first: int, after: int, every: int) -> Iterator[int]:
        """Yield the frames from `first` to before `after` at which segments begin: the first possible of each interval.

        Each key frame tried costs a seek.
        """
        for line in range(first // every, -(-after // every)):
            keys = self._keys[(self._keys >= line * every) & (self._keys < min(after, (line + 1) * every))]
            start = next((key for key in keys.tolist() if not key or self._starts_closed_gop(key)), -1)
            if start >= first:
                yield start

    def bytes_between(self, start: int, stop: int) -> float:
        """Return the fraction of the track's bytes between two packets."""
        before, after = (self._ends[number - 1] if number else 0 for number in (start, stop))
        return float((after - before) / self._ends[-1])

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
        """Return the presentation time of a frame in the segment that begins at `start`, or later."""
        place = number - start
        packets = islice(self.packets(start), place + 1 + REORDERED)
        times = sorted(packet.pts for packet in packets if packet.size and packet.pts is not None)
        return int(times[place] if place < len(times) else self._times[number] + self._delay)

    def _starts_closed_gop(self, number: int) -> bool:
        """Return whether a key frame precedes all frames stored after it, and they need no frame before it."""
        packets = islice(self.packets(number), REORDERED + 2)
        # the index marks key frames; libav clears the mark of a damaged packet
        first = next(packets, None)
        if first is None or first.pts is None or not _refreshes(first, self._track):
            return False
        return all(packet.pts is not None and packet.pts > first.pts for packet in packets if packet.size)


def _refreshes(packet: Any, track: Any) -> bool:
    """Return whether a packet marked as a key frame is one, not the start of a gradual refresh.

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
