"""Joined transport streams (as by `cat`), read as one: with one rising clock and without lost packets.

At a join the clock restarts, and so do the packets' counters, which demuxers take for a loss. A join is a place where
the video's times fall or jump, or where counters break while every track begins a new frame. Bytes are changed there on
reading: counters (ISO/IEC 13818-1, 2.4.3.3), clocks (2.4.3.5) and times (2.4.3.7). A stream without a join stays
unchanged.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.file_types import HEAD_BYTES, find_film
from framekiln.media.files import MediaFile, open_media
from framekiln.media.stream_view import StreamView
from framekiln.media.video.transport_packets import (
    SYNC,
    WRAP,
    Packets,
    find_far,
    find_times,
    find_video_tracks,
    have_clock,
    is_full,
    list_video_times,
    read_clocks,
    read_pids,
    read_time,
    write_time,
)

_JUMP = 10 * 90_000
"""Ticks by which a clock may jump: a signal loss of up to 10 s keeps its length, as in ffmpeg
(`-dts_delta_threshold`)."""
_BLOCK, _PIDS = 4 << 20, 1 << 13
_AROUND = 8000  # packets examined before and after a place: 1.5 MB
_TABLES = (0x00, 0x10, 0x11, 0x12, 0x14)  # packet ids of tables before which no track begins
_NO_TRACK = (0x1F, 0xFF)  # the packet id of filling
_TABLES_BEFORE = 64  # packets between tables and the clock after them
_MOST_ENDS = 100  # ends of runs of packets after which another video may begin
_FRAME = 3600  # ticks of a frame if unknown: 25 a second


@dataclass(frozen=True)
class _Join:
    """A place from which clocks and counters are changed, by these total amounts."""

    at: int  # bytes
    ticks: int = 0
    counters: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(_PIDS, np.uint8))
    cuts: tuple[tuple[int, int], ...] = ()  # packet id and first byte of incomplete frames before it
    cut_video: bool = False


@dataclass(frozen=True)
class _PacketPlaces:
    """The places of a file's packets: runs of whole ones, from byte to byte, and the joins between them."""

    step: int  # bytes from packet to packet: 192 with a time before each
    runs: list[tuple[int, int]]
    joins: list[_Join]
    stops: list[int]  # the first byte of a part with another video track or codec, if any


def open_transport_stream(media: MediaFile) -> BinaryIO:
    """Open a file for reading and seeking, with mended joins. Raises MediaError: UNREADABLE."""
    stream = open_media(media)
    layout = _find_layout(media)
    return cast("BinaryIO", _Mended(stream, layout)) if layout.joins or layout.stops else stream


def ends_in_a_frame(stream: BinaryIO) -> bool:
    """Return whether the video's last frame is cut between two packets; the position is undefined afterwards.

    A frame's last packet is filled up, unless the frame ends with a packet, as one in 184 does.
    """
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _AROUND * 188))
    tail = np.frombuffer(stream.read(), np.uint8)
    for step in (188, 192):
        packets = tail[len(tail) % step :].reshape(-1, step)[:, step - 188 :]
        video = next((pid for (pid, _), _ in find_times(packets, video=True)), None)
        own = packets[(read_pids(packets) == video) & (packets[:, 3] & 0x10 > 0)] if video is not None else packets[:0]
        if len(own) and (packets[:, 0] == SYNC).all():
            return is_full(own[-1])
    return False


class _Mended(StreamView):
    """The bytes of a file in which clocks and counters continue at each join."""

    def __init__(self, stream: BinaryIO, layout: _PacketPlaces) -> None:
        super().__init__(stream, min([stream.seek(0, os.SEEK_END), *layout.stops]))
        self._layout = layout

    @property
    def losses(self) -> list[MediaError]:
        """Parts of the video that are left out: frames cut at a join, and parts with another codec."""
        errors = []
        if cut := sum(join.cut_video for join in self._layout.joins):
            message = f"it was joined of parts, and {cut:,} of them ended inside a frame, which is left out"
            errors.append(MediaError(Reason.TRUNCATED, message))
        if self._layout.stops:
            message = "it was joined from parts with other codecs or track numbers; the first ones are read: split it"
            errors.append(MediaError(Reason.UNSUPPORTED, message))
        return errors

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed's protocol of buffers
        step = self._layout.step
        start, stop = max(0, self._at - step), min(self._size, self._at + len(buffer) + step)
        self._stream.seek(start)
        data = np.frombuffer(self._stream.read(max(0, stop - start)), np.uint8).copy()
        for first, last in self._layout.runs:  # whole packets inside
            low = max(first, first + -(-(start - first) // step) * step)
            high = min(last, first + (stop - first) // step * step)
            if low < high:
                packets = data[low - start : high - start].reshape(-1, step)[:, step - 188 :]
                self._mend(packets, low)
        part = data[self._at - start :][: len(buffer)]
        buffer[: len(part)] = part.tobytes()
        self._at += len(part)
        return len(part)

    def _mend(self, packets: Packets, at: int) -> None:
        for stop, pid, start in [(join.at, *cut) for join in self._layout.joins for cut in join.cuts]:
            low, high = ((place - at) // self._layout.step for place in (start, stop))
            before = packets[max(0, low) : max(0, high)]
            before[read_pids(before) == pid, 1:3] = _NO_TRACK
        for join, following in zip(self._layout.joins, [*self._layout.joins[1:], _Join(1 << 62)], strict=False):
            low, high = ((place.at - at + self._layout.step - 1) // self._layout.step for place in (join, following))
            own = packets[max(0, low) : max(0, high)]
            own[:, 3] = (own[:, 3] & 0xF0) | ((own[:, 3] + join.counters[read_pids(own)]) & 0x0F)
            for place in np.flatnonzero(have_clock(own)) if join.ticks else ():
                clock = (read_clocks(own[place : place + 1])[0] + join.ticks) % WRAP
                own[place, 6:10] = [clock >> shift & 0xFF for shift in (25, 17, 9, 1)]
                own[place, 10] = (own[place, 10] & 0x7F) | (clock & 1) << 7
            for _, at_time in find_times(own) if join.ticks else ():
                write_time(at_time, (read_time(at_time) + join.ticks) % WRAP)


@lru_cache(4)  # sound is read through a second handle
def _find_layout(media: MediaFile) -> _PacketPlaces:
    with open_media(media) as stream:
        head = np.frombuffer(stream.read(20 * 192), np.uint8)
        step = 192 if len(head) > 4 and (head[4::192] == SYNC).all() else 188
        layout, found, clock = _PacketPlaces(step, [], [], []), set[int](), -1
        for at, packets in _read_runs(stream, step, layout.runs):
            pids = read_pids(packets)
            tables = np.flatnonzero(pids == 0)
            breaks = tables[1:][np.diff(packets[tables, 3] & 0x0F) % 16 != 1]
            clocked = np.flatnonzero(have_clock(packets))
            clocked = clocked[pids[clocked] == pids[clocked[0]]] if len(clocked) else clocked
            times = read_clocks(packets[clocked])
            steps = np.diff(times, prepend=clock if clock >= 0 else times[:1]) % WRAP
            found |= {at + _find_start(pids, place, 0) * step for place in breaks.tolist()}
            for jump in np.flatnonzero((steps > _JUMP) & (steps < WRAP)):
                first = int(clocked[jump - 1]) + 1 if jump else 0  # the clock before it is of the earlier part
                before = clock if jump == 0 else int(times[jump - 1])
                near, far = find_far(packets[first : clocked[jump]], before, _JUMP)
                found.add(at + _find_start(pids, first + far, first + near) * step)
            clock = int(times[-1]) if len(times) else clock
        for _, end in layout.runs[-_MOST_ENDS:]:
            stream.seek(end)
            if not layout.stops and find_film(stream.read(HEAD_BYTES)) not in ("", "mpegts"):
                layout.stops.append(end)
        places = sorted(found - {0})
        for before, place, after in zip([0, *places], places, [*places[1:], 1 << 62], strict=False):
            if not layout.stops:
                _add_join(stream, layout, before, place, after)
    return layout


def _find_start(pids: NDArray[np.uint16], place: int, first: int) -> int:
    """Return the first of the tables before a packet, from packet `first` on, or the packet itself."""
    low = max(first, place - _TABLES_BEFORE)
    tables = np.flatnonzero(pids[low : place + 1] == 0)
    start = low + int(tables[-1]) if len(tables) else place
    while start > low and pids[start - 1] in _TABLES:
        start -= 1
    return start


def _read_runs(stream: BinaryIO, step: int, runs: list[tuple[int, int]]) -> Iterator[tuple[int, Packets]]:
    """Yield the place of each piece of whole packets, and these; their extents are added to `runs`."""
    at, size = 0, stream.seek(0, os.SEEK_END)
    while at + step <= size:
        stream.seek(at)
        block = np.frombuffer(stream.read(_BLOCK), np.uint8)
        prefix, count = step - 188, len(block) // step
        if not count:
            return
        marks = block[prefix : count * step : step] == SYNC
        good = count if marks.all() else int(np.argmin(marks))
        if not good:
            at += _find_sync(block, step, prefix)
            continue
        if runs and runs[-1][1] == at:
            runs[-1] = (runs[-1][0], at + good * step)
        else:
            runs.append((at, at + good * step))
        yield at, block[: good * step].reshape(-1, step)[:, prefix:]
        at += good * step


def _find_sync(block: NDArray[np.uint8], step: int, prefix: int) -> int:
    """Return where three consecutive packets begin, after the first byte; all of the block if nowhere."""
    marks = block == SYNC
    last = len(block) - prefix - 2 * step
    if last <= 1:
        return len(block)
    three = marks[prefix : prefix + last] & marks[prefix + step :][:last] & marks[prefix + 2 * step :][:last]
    found = np.flatnonzero(three[1:])
    return 1 + int(found[0]) if len(found) else max(1, last)


def _add_join(stream: BinaryIO, layout: _PacketPlaces, before: int, place: int, after: int) -> None:
    """Add a join or the end to a layout, if there is one at a place."""
    earlier = _read_packets(stream, layout, max(before, place - _AROUND * layout.step), place)
    later = _read_packets(stream, layout, place, min(after, place + _AROUND * layout.step))
    ends, begins = list_video_times(earlier), list_video_times(later)
    if not ends or not begins:
        return
    tracks, new_tracks = find_video_tracks(earlier), find_video_tracks(later)
    if not any(pid == own and (kind == new or -1 in (kind, new)) for pid, kind in tracks for own, new in new_tracks):
        layout.stops.append(place)
        return
    counters, new = _compare_counters(earlier, later)
    steps = np.diff([time for _, time in ends]) % WRAP
    frame = int(np.median(steps[steps < _JUMP])) if (steps < _JUMP).any() else _FRAME
    gap = (begins[0][1] - ends[-1][1]) % WRAP
    ticks = 0
    if not 0 < gap <= _JUMP:
        shown = max(((time - ends[0][0] + WRAP // 2) % WRAP for time, _ in ends)) - WRAP // 2 + ends[0][0]
        ticks = ends[-1][1] + frame - begins[0][1]
        late = (shown + frame - begins[0][0] - ticks) % WRAP
        ticks += late if late < _JUMP else 0
    elif not new:
        return
    last = layout.joins[-1] if layout.joins else _Join(0)
    cuts, video = _find_cuts(earlier)
    for pid, cut in cuts.items():
        if (own := later[read_pids(later) == pid]).size:
            counters[pid] = (int(earlier[cut, 3]) - int(own[0, 3])) & 0x0F
    # the packets were read unchanged, so the changes before them are added
    total = ((last.counters + counters) & 0x0F).astype(np.uint8)
    starts = tuple((pid, place - (len(earlier) - cut) * layout.step) for pid, cut in cuts.items())
    layout.joins.append(_Join(place, (last.ticks + ticks) % WRAP, total, starts, video in cuts))


def _find_cuts(packets: Packets) -> tuple[dict[int, int], int]:
    """Return the first packet of each track's last frame if that is cut, by packet id, and the video's id."""
    pids, cuts = read_pids(packets), dict[int, int]()
    for pid in {pid for (pid, _), _ in find_times(packets)}:
        own = np.flatnonzero((pids == pid) & (packets[:, 3] & 0x10 > 0))
        begins = own[packets[own, 1] & 0x40 > 0]
        if is_full(packets[own[-1]]):
            cuts[pid] = int(begins[-1])
    return cuts, next((pid for (pid, _), _ in find_times(packets, video=True)), -1)


def _read_packets(stream: BinaryIO, layout: _PacketPlaces, start: int, stop: int) -> Packets:
    step, pieces = layout.step, [np.zeros((0, 188), np.uint8)]
    for first, last in layout.runs:
        low, high = max(first, first + (start - first) // step * step), min(last, stop)
        if low < high:
            stream.seek(low)
            data = np.frombuffer(stream.read(high - low), np.uint8)
            count = len(data) // step
            pieces.append(data[: count * step].reshape(-1, step)[:, step - 188 :])
    return np.concatenate(pieces)


def _compare_counters(earlier: Packets, later: Packets) -> tuple[NDArray[np.uint8], bool]:
    """Return the amounts to add to each track's counters, and whether all tracks restart.

    A track that goes on inside a frame keeps its break.
    """
    counters, new = np.zeros(_PIDS, np.uint8), True
    before, after = read_pids(earlier), read_pids(later)
    filled = {int(pid): earlier[(before == pid) & (earlier[:, 3] & 0x10 > 0)] for pid in np.unique(before)}
    for pid in np.unique(after):
        own = later[(after == pid) & (later[:, 3] & 0x10 > 0)]
        if not len(own) or not len(filled.get(int(pid), ())):
            continue
        last, first = filled[int(pid)][-1], own[0]
        if not first[1] & 0x40:
            new = False
        else:
            counters[pid] = (int(last[3]) + 1 - int(first[3])) & 0x0F
    return counters, new
