"""What an MP4 or MOV says that it holds, before libav believes it: a kilobyte can ask for gigabytes of its tables.

Where samples are of one size, their size and number are told once, and libav fills 37 bytes for each of them. Each
takes a byte of the file or more; only where sound is packed, old QuickTime counts what it unpacks to.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from pipeline.errors import MediaError, Reason

_FEW = 10_000_000  # samples of which nothing is said: 370 MB; three minutes of 48 kHz
_BLOCK = 1 << 20  # bytes of one read
_UNPACKED = 1 << 26  # bytes of packed tables: those of a day at 25 frames a second
# A box begins with its size, of which the first byte is 0 below 16 MB. Sample sizes: ISO/IEC 14496-12, 8.7.3; runs of a
# fragment: 8.8.8. A run whose flags hold any of 0xf00 says something of each sample, so its bytes bound their number.
_SIZES = re.compile(rb"stsz(?<=\0...stsz)....(?!\0\0\0\0)....(....)", re.S)
_RUNS = re.compile(
    rb"trun(?<=\0...trun)..[\x00\x10\x20\x30\x40\x50\x60\x70\x80\x90\xa0\xb0\xc0\xd0\xe0\xf0].(....)", re.S
)
_LONGEST = 20  # bytes of a match with the size before it
_PACKED = re.compile(rb"cmvd(?<=\0...cmvd)....", re.S)


def check_claims(stream: BinaryIO, *, cut: bool) -> None:
    """Refuse a file whose tables say more than it can hold. The stream is left anywhere.

    Args:
        stream: an ISO base media file.
        cut: whether its end is missing, so that more may have been there.

    Raises:
        MediaError: TOO_LARGE.
    """
    size = stream.seek(0, os.SEEK_END)
    room, samples = max(_FEW, 4 * size if cut else size), 0
    for piece in _pieces(stream, size):
        samples += _claimed(piece)
        if samples > room:
            raise MediaError(
                Reason.TOO_LARGE, f"its tables say {samples:,} samples, more than its {size:,} bytes can hold"
            )


def _claimed(data: bytes) -> int:
    """How many samples a piece of the tables says without a word on each of them."""
    packed = [_unpacked(data[found.end() :]) for found in _PACKED.finditer(data)]
    if any(_PACKED.search(tables) for tables in packed) or (packed and len(data) >= _BLOCK):
        raise MediaError(Reason.TOO_LARGE, "its tables are packed, and not to be seen through")
    parts = [data, *packed]
    found = [match for part in parts for pattern in (_SIZES, _RUNS) for match in pattern.finditer(part)]
    return sum(int.from_bytes(match[1], "big") for match in found)


def _unpacked(data: bytes) -> bytes:
    """What a compressed header holds (QuickTime's `cmov`)."""
    unpacker = zlib.decompressobj()
    try:
        tables = unpacker.decompress(data, _UNPACKED)
    except zlib.error:
        return b""
    if unpacker.unconsumed_tail:
        raise MediaError(Reason.TOO_LARGE, f"its packed tables take more than {_UNPACKED:,} bytes")
    return tables


def _pieces(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """All boxes of the file but those with pictures and sound, in pieces that share no whole match."""
    for start, stop in _boxes(stream, size):
        at, before = start, b""
        while at < stop:
            stream.seek(at)
            block = stream.read(min(_BLOCK, stop - at))
            if not block:
                return
            yield before + block
            at, before = at + len(block), block[-(_LONGEST - 1) :]


def _boxes(stream: BinaryIO, size: int) -> Iterator[tuple[int, int]]:
    """Where each top-level box begins and ends, but for `mdat` (ISO/IEC 14496-12, 4.2)."""
    at = 0
    while at < size:
        stream.seek(at)
        head = stream.read(16)
        length = int.from_bytes(head[:4], "big")
        length = int.from_bytes(head[8:16], "big") if length == 1 else length or size - at
        if len(head) < 8 or length < 8:
            return
        if head[4:8] != b"mdat":
            yield at, min(size, at + length)
        at += length
