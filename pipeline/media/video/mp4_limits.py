"""Sample counts of an MP4 or MOV, checked before libav reads them: a file of 1 KB can demand tables of gigabytes.

For samples of one size, the file has only their size and number, and libav allocates 37 bytes for each. Each sample
takes at least a byte of the file. The exception is compressed sound in old QuickTime, counted as uncompressed samples.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from pipeline.contract.errors import MediaError, Reason
from pipeline.media.video.truncation import boxes

_MIN_LIMIT = 10_000_000  # samples allowed in any file: 370 MB; three minutes of 48 kHz
_BLOCK = 1 << 20  # bytes of one read
_MAX_TABLES = 1 << 26  # bytes of decompressed tables: those of a day at 25 frames a second
# A box begins with its size; the first byte of it is 0 below 16 MB. Sample sizes: ISO/IEC 14496-12, 8.7.3; runs of a
# fragment: 8.8.8. A run with any flag of 0xf00 has data for each sample, so its bytes limit their number.
_SIZES = re.compile(rb"stsz(?<=\0...stsz)....(?!\0\0\0\0)....(....)", re.S)
_RUNS = re.compile(
    rb"trun(?<=\0...trun)..[\x00\x10\x20\x30\x40\x50\x60\x70\x80\x90\xa0\xb0\xc0\xd0\xe0\xf0].(....)", re.S
)
_MAX_MATCH = 20  # bytes of a match with the size before it
_COMPRESSED = re.compile(rb"cmvd(?<=\0...cmvd)....", re.S)


def check_sample_counts(stream: BinaryIO, *, truncated: bool) -> None:
    """Reject a file with sample counts beyond its size. The position of the stream is undefined after.

    Args:
        stream: an ISO base media file.
        truncated: whether its end is missing, so that it may have been larger.

    Raises:
        MediaError: TOO_LARGE.
    """
    size = stream.seek(0, os.SEEK_END)
    limit, samples = max(_MIN_LIMIT, 4 * size if truncated else size), 0
    for piece in _pieces(stream, size):
        samples += _count_samples(piece)
        if samples > limit:
            raise MediaError(
                Reason.TOO_LARGE, f"its tables state {samples:,} samples, more than {size:,} bytes can hold"
            )


def _count_samples(data: bytes) -> int:
    """Return the number of samples that a piece of the tables states without data for each."""
    tables = [_decompress(data[match.end() :]) for match in _COMPRESSED.finditer(data)]
    if any(_COMPRESSED.search(table) for table in tables) or (tables and len(data) >= _BLOCK):
        raise MediaError(Reason.TOO_LARGE, "its tables are compressed in a way that cannot be checked")
    matches = (match for part in (data, *tables) for pattern in (_SIZES, _RUNS) for match in pattern.finditer(part))
    return sum(int.from_bytes(match[1], "big") for match in matches)


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


def _pieces(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield all boxes except `mdat` in pieces that overlap by less than a match."""
    for kind, start, stop in boxes(stream, size):
        at, before = start, b""
        while kind != b"mdat" and at < min(size, stop):
            stream.seek(at)
            block = stream.read(min(_BLOCK, stop - at))
            if not block:
                return
            yield before + block
            at, before = at + len(block), block[-(_MAX_MATCH - 1) :]
