"""Sample counts of an MP4 or MOV, checked before libav reads them: a file of 1 KB can demand tables of gigabytes.

For samples of one size, the file has only their size and number, and libav allocates 37 bytes for each. Each sample
takes at least a byte of the file. The exception is compressed sound in old QuickTime, counted as uncompressed samples.
Runs of a fragment with data for each sample may state more than their box holds, and libav allocates for all of them.
"""

import os
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.damage.truncation import boxes

_MIN_LIMIT = 10_000_000  # samples allowed in any file: 370 MB; three minutes of 48 kHz
_BLOCK = 1 << 20  # bytes of one read
_MAX_TABLES = 1 << 26  # bytes of decompressed tables: those of a day at 25 frames a second
# Sample sizes: ISO/IEC 14496-12, 8.7.3; runs of a fragment: 8.8.8. A run has four bytes for each sample and each flag
# of 0xf00. A box begins with its size, 1 where 8 bytes of size follow its name; libav cuts sizes that are too large.
# Numbers from 2^27 on are left to libav, which refuses them from 90 million on: no text has smaller ones.
_SIZES = (
    re.compile(rb"stsz....(?!\0\0\0\0)....([\0-\x07]...)", re.S),
    re.compile(rb"stsz(?<=\0\0\0\x01stsz).{12}(?!\0\0\0\0)....([\0-\x07]...)", re.S),
)
_RUNS = (
    re.compile(rb"trun(?<=(....)trun)..(.).([\0-\x07]...)", re.S),
    re.compile(rb"trun(?<=\0\0\0\x01trun).{4}(....)..(.).([\0-\x07]...)", re.S),
)
_DATA_FLAGS = 0x0F  # of the second byte of flags: duration, size, flags, time offset
_MAX_MATCH = 28  # bytes of a match with the size before it
_COMPRESSED = re.compile(rb"cmvd....", re.S)


def check_sample_counts(stream: BinaryIO, *, truncated: bool) -> None:
    """Reject an ISO base media file with sample counts beyond its size; a truncated one may have been larger.

    The position of the stream is undefined after.
    Raises MediaError: TOO_LARGE.
    """
    size = stream.seek(0, os.SEEK_END)
    limit, samples = max(_MIN_LIMIT, 4 * size if truncated else size), 0
    for piece, seen in _read_pieces(stream, size):
        samples += _count_samples(piece, seen, size)
        if samples > limit:
            raise MediaError(
                Reason.TOO_LARGE, f"its tables state {samples:,} samples, more than {size:,} bytes can hold"
            )


def _count_samples(data: bytes, seen: int, size: int) -> int:
    # without data for each; `seen`: bytes at the start that were in the piece before, too
    tables = [table for match in _COMPRESSED.finditer(data) if (table := _decompress(data[match.end() :]))]
    if any(_COMPRESSED.search(table) for table in tables) or (tables and len(data) >= _BLOCK):
        raise MediaError(Reason.TOO_LARGE, "its tables are compressed in a way that cannot be checked")
    return _count_stated(data, seen, size) + sum(_count_stated(table, 0, size) for table in tables)


def _count_stated(data: bytes, seen: int, size: int) -> int:
    sizes = [match[1] for pattern in _SIZES for match in pattern.finditer(data) if match.end() > seen]
    runs = [match for pattern in _RUNS for match in pattern.finditer(data) if match.end() > seen]
    total = sum(int.from_bytes(number, "big") for number in sizes)
    for box, flags, samples in (run.groups() for run in runs):  # those beyond what the box has data for
        count, each = int.from_bytes(samples, "big"), 4 * (flags[0] & _DATA_FLAGS).bit_count()
        total += max(0, count - min(size, int.from_bytes(box, "big")) // each) if each else count
    return total


def _decompress(data: bytes) -> bytes:
    """Return the content of a compressed header (QuickTime's `cmov`)."""
    decompressor = zlib.decompressobj()
    try:
        tables = decompressor.decompress(data, _MAX_TABLES)
    except zlib.error:
        return b""
    if decompressor.unconsumed_tail:
        raise MediaError(Reason.TOO_LARGE, f"its compressed tables take more than {_MAX_TABLES:,} bytes")
    return tables


def _read_pieces(stream: BinaryIO, size: int) -> Iterator[tuple[bytes, int]]:
    """Yield all boxes except `mdat` in pieces that overlap by less than a match, and the bytes of the overlap."""
    for kind, start, stop in boxes(stream, size):
        at, before = start, b""
        while kind != b"mdat" and at < min(size, stop):
            stream.seek(at)
            block = stream.read(min(_BLOCK, stop - at))
            if not block:
                return
            yield before + block, len(before)
            at, before = at + len(block), block[-(_MAX_MATCH - 1) :]
