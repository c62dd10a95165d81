"""Damage to files, mostly where formats store sizes, counts and dimensions, since it has most effect there."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Literal

import numpy as np

from framekiln.media.video.transport_packets import (
    WRAP,
    find_times,
    have_clock,
    read_clocks,
    read_time,
    write_time,
)
from tests.support.media.rare_photos import tagged_tiff

_VALUES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0xFFFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_LARGEST = 200_000  # bytes that a damaged file may grow to
_PACKET = 188  # bytes of a transport stream's packet
_PNG = b"\x89PNG\r\n\x1a\n"
# What stands before a box, chunk, element or marker: four letters of ISO media, RIFF and PNG; ids of Matroska; JPEG.
_PLACES = re.compile(rb"[A-Za-z][A-Za-z0-9 ]{3}|\xff[\xc0-\xfe]|\x1a\x45\xdf\xa3|[\x80-\xff][\x40-\x7f\x80-\x9f]\x81")


def damaged(data: bytes, other: bytes, rng: Random) -> bytes:
    """A file with one to six faults.

    Args:
        data: the file.
        other: another one, from which pieces may be taken.
        rng: decides everything.
    """
    if data[:4] in (b"II*\0", b"MM\0*") and rng.random() < 0.5:
        data = tagged_tiff(rng)
    result = bytearray(data)
    if data[:1] == b"G" and data[188:189] == b"G":
        _change_stream(result, other, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        if result:
            rng.choice(_WAYS)(result, other, rng)
    result = result[:_LARGEST]
    if result.startswith(_PNG) and rng.random() < 0.9:
        _sign_png(result)
    return bytes(result)


def _change_stream(data: bytearray, other: bytes, rng: Random) -> None:
    """Join a transport stream with itself or another file, cut it between packets, or change its clock."""
    size = len(data) // _PACKET * _PACKET
    at = rng.randrange(0, size + 1, _PACKET)
    if (way := rng.randrange(4)) == 0:
        data += rng.choice((data[at:], other[: _LARGEST - size]))
    elif way == 1:
        del data[at:]
    elif way == 2:
        del data[at : at + rng.choice((1, 2, 30)) * _PACKET]
    else:
        packets = np.frombuffer(bytes(data[at:size]), np.uint8).reshape(-1, _PACKET).copy()
        ticks = rng.choice((-1, 1)) * rng.choice((1, 90_000, 10_000_000, 1 << 32))
        for _, time in find_times(packets):
            write_time(time, (read_time(time) + ticks) % WRAP)
        for place in np.flatnonzero(have_clock(packets)):
            clock = (int(read_clocks(packets[place : place + 1])[0]) + ticks) % WRAP
            packets[place, 6:10] = [clock >> shift & 0xFF for shift in (25, 17, 9, 1)]
        data[at:size] = packets.tobytes()


def _bits(data: bytearray, _: bytes, rng: Random) -> None:
    for _ in range(rng.choice((1, 1, 4, 16))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _number(data: bytearray, _: bytes, rng: Random) -> None:
    _put(data, rng.randrange(len(data)), rng)


def _head(data: bytearray, _: bytes, rng: Random) -> None:
    _put(data, rng.randrange(min(len(data), 64)), rng)


def _field(data: bytearray, _: bytes, rng: Random) -> None:
    """A number at or soon after a name: the box's size, its counts and dimensions."""
    places = [match.start() for match in _PLACES.finditer(data)]
    if places:
        at = rng.choice(places) + rng.choice((-4, 0, 2, 4, 4, 8, 12, 16, 20, rng.randrange(64)))
        _put(data, max(0, min(len(data) - 1, at)), rng)


def _put(data: bytearray, at: int, rng: Random) -> None:
    width, order = rng.choice((1, 2, 4, 4, 8)), rng.choice(_ORDERS)
    old = int.from_bytes(data[at : at + width], order)
    new = rng.choice((rng.choice(_VALUES), old + rng.randrange(-8, 9), old * rng.choice((2, 256)), rng.getrandbits(32)))
    data[at : at + width] = (new % (1 << 8 * width)).to_bytes(width, order)[: len(data) - at]


def _cut(data: bytearray, _: bytes, rng: Random) -> None:
    del data[rng.randrange(1, len(data) + 1) :]


def _remove(data: bytearray, _: bytes, rng: Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 4, 16, 256))]


def _repeat(data: bytearray, _: bytes, rng: Random) -> None:
    at, size = rng.randrange(len(data)), rng.choice((1, 4, 16, 256, 4096))
    data[at:at] = data[at : at + size] * rng.choice((1, 2, 16))


def _splice(data: bytearray, other: bytes, rng: Random) -> None:
    at, start, size = rng.randrange(len(data)), rng.randrange(len(other) or 1), rng.choice((4, 16, 256, 4096))
    data[at : at + rng.choice((0, size))] = other[start : start + size]


def _chunks(data: bytearray) -> Iterator[tuple[int, int]]:
    """Start and length of each PNG chunk's name and content."""
    at = 8
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if at + 12 + length > len(data):
            return
        yield at + 4, length + 4
        at += 12 + length


def _sign_png(data: bytearray) -> None:
    """Make all checksums right, so that the damage is not just found by them."""
    for start, length in list(_chunks(data)):
        data[start + length : start + length + 4] = zlib.crc32(data[start : start + length]).to_bytes(4, "big")


_ORDERS: tuple[Literal["big", "little"], ...] = ("big", "little")
_WAYS: tuple[Callable[[bytearray, bytes, Random], None], ...] = (
    *(_bits, _number, _head, _head, _field, _field, _field, _field),
    *(_cut, _remove, _repeat, _splice),
)
