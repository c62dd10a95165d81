"""Packets of an MPEG transport stream (ISO/IEC 13818-1, 2.4.3): ids, clocks, and times of frames."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SYNC, WRAP = 0x47, 1 << 33  # first byte of a packet; ticks of 90 kHz after which a clock begins anew
_EARLY = 90_000  # ticks by which a frame's time may lie before the clock: recorders write clocks late
_CLOCK_ALONE = 7  # bytes of an adaptation field
Packets = NDArray[np.uint8]
"""Packets of 188 bytes, n x 188."""


def list_video_times(packets: Packets) -> list[tuple[int, int]]:
    """Return the display and decoding times of the first video track's frames."""
    found: list[tuple[int, int]] = []
    track = -1
    for pid, at in find_times(packets, video=True):
        if track in (pid[0], -1):
            track = pid[0]
            if pid[1]:
                found.append((read_time(at), read_time(at)))
            else:
                found[-1] = (found[-1][0], read_time(at))
    return found


def find_times(packets: Packets, *, video: bool = False) -> Iterator[tuple[tuple[int, bool], NDArray[np.uint8]]]:
    """Yield each time in frame headers: packet id, whether it is a display time, and its five bytes."""
    begins = (packets[:, 1] & 0x40 > 0) & (packets[:, 3] & 0x10 > 0)
    for place in np.flatnonzero(begins):
        packet = packets[place]
        at = 4 + (1 + int(packet[4]) if packet[3] & 0x20 else 0)
        if at + 19 > 188 or packet[at] or packet[at + 1] or packet[at + 2] != 1:
            continue
        kind, flags = packet[at + 3], packet[at + 7] >> 6
        if (0xE0 <= kind <= 0xEF if video else kind in (0xBD, 0xFD) or 0xC0 <= kind <= 0xEF) and flags & 2:
            pid = int(packet[1] & 0x1F) << 8 | int(packet[2])
            yield (pid, True), packet[at + 9 : at + 14]
            if flags == 3:
                yield (pid, False), packet[at + 14 : at + 19]


def find_far(packets: Packets, clock: int, most: int) -> tuple[int, int]:
    """Return the packet after the last time near a clock, and the first with another time, or the number of packets.

    `most`: ticks by which a near time may lie after the clock.
    """
    near = 0
    for place in np.flatnonzero(packets[:, 1] & 0x40).tolist():
        for _, at_time in find_times(packets[place : place + 1]):
            if (read_time(at_time) - clock + _EARLY) % WRAP > most + _EARLY:
                return near, place
            near = place + 1
    return near, len(packets)


def find_video_tracks(packets: Packets) -> set[tuple[int, int]]:
    """Return packet id and type (table 2-34) of each video track with frames; -1 if no table has the type."""
    types: dict[int, int] = {}
    for packet in packets[(packets[:, 1] & 0x40 > 0) & (packets[:, 3] & 0x10 > 0)]:
        at = 4 + (1 + int(packet[4]) if packet[3] & 0x20 else 0)
        at += 1 + int(packet[at]) if at < 188 else 0
        section = packet[at:].tolist()
        if len(section) > 12 and section[0] == 2 and section[1] & 0xF0 == 0xB0:  # a program's list of tracks (2.4.4.8)
            end = 3 + ((section[1] & 0x0F) << 8 | section[2]) - 4
            at = 12 + ((section[10] & 0x0F) << 8 | section[11])
            while at + 5 <= min(end, len(section)):
                types[(section[at + 1] & 0x1F) << 8 | section[at + 2]] = section[at]
                at += 5 + ((section[at + 3] & 0x0F) << 8 | section[at + 4])
    return {(pid, types.get(pid, -1)) for (pid, _), _ in find_times(packets, video=True)}


def read_pids(packets: Packets) -> NDArray[np.uint16]:
    """Return the packet ids, n."""
    return (packets[:, 1] & np.uint8(0x1F)).astype(np.uint16) << np.uint16(8) | packets[:, 2]


def is_full(packet: NDArray[np.uint8]) -> bool:
    """Return whether a packet has no filling, at most a clock; a frame's last packet has some, except one in 184."""
    return not packet[3] & 0x20 or bool(packet[5] & 0x10 and packet[4] == _CLOCK_ALONE)


def have_clock(packets: Packets) -> NDArray[np.bool_]:
    """Return which packets state the program's clock, n."""
    return (packets[:, 3] & 0x20 > 0) & (packets[:, 4] >= 7) & (packets[:, 5] & 0x10 > 0)


def read_clocks(packets: Packets) -> NDArray[np.int64]:
    """Return the clocks of packets that have one, in ticks, n."""
    values = packets[:, 6:11].astype(np.int64)
    return values[:, 0] << 25 | values[:, 1] << 17 | values[:, 2] << 9 | values[:, 3] << 1 | values[:, 4] >> 7


def read_time(data: NDArray[np.uint8]) -> int:
    """Return the time in five bytes, in ticks."""
    first, second, third, fourth, fifth = data.tolist()
    return (first & 0x0E) << 29 | second << 22 | (third & 0xFE) << 14 | fourth << 7 | fifth >> 1


def write_time(data: NDArray[np.uint8], time: int) -> None:
    """Write a time in ticks into its five bytes."""
    data[0] = (data[0] & 0xF1) | (time >> 29 & 0x0E)
    data[1:] = time >> 22 & 0xFF, (time >> 14 & 0xFE) | 1, time >> 7 & 0xFF, (time << 1 & 0xFE) | 1
