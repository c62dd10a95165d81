"""Damage that libav and Pillow do not report: missing ends, wrong sample tables, holes.

Decoders report truncation and damage alike, but users need to distinguish them. A format's stated length is trusted.
Other formats are searched for their end marker.

Sample counts of an MP4 or MOV are checked before libav reads them: a file of 1 KB can demand tables of gigabytes. For
samples of equal size, the file holds only their size and number, and libav allocates 37 bytes for each. Each sample
takes at least a byte of the file, except compressed sound in old QuickTime, which is counted as uncompressed samples. A
fragment's runs may state more samples than their box holds, and libav allocates for all of them.

A sparse file may state 15 TB and have 4 KB. Decoders would search the rest for hours.
"""

import errno
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import BinaryIO

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.file_types import PACKETS, Kind

_TAIL = 4096  # last bytes, which must contain the end marker: cameras and editors append some data
_MAX_BOXES = 10_000  # a fragmented film has two boxes a second
_BESIDE_INDEX = {b"ftyp", b"mdat", b"wide", b"free", b"skip", b"uuid"}


def is_truncated(stream: BinaryIO, kind: Kind) -> bool:
    """Return whether the end is missing, by the stated length or the end marker.

    False for formats with neither (TIFF; for videos see `joined_films`). The stream's position is undefined afterwards.
    """
    size = stream.seek(0, os.SEEK_END)
    stated_length = _STATED_LENGTH.get(kind.name)
    if stated_length:
        return stated_length(stream, size) > size
    stream.seek(max(0, size - _TAIL))
    tail = stream.read()
    if kind.name == "mpegts":  # the last packets end with the file; the first one may be cut
        return all(set(tail[-step * 3 + sync :: step]) != {0x47} for step, sync in PACKETS)
    if kind.name in _LAST_BYTES:
        return not tail.rstrip(b"\x00").endswith(_LAST_BYTES[kind.name])
    return kind.name in _END_MARKS and _END_MARKS[kind.name] not in tail


def _read_number(stream: BinaryIO, at: int) -> int:
    stream.seek(at)
    return int.from_bytes(stream.read(4), "little")


def boxes(stream: BinaryIO, size: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield type, start and stated end of each top-level box of an ISO base media file (ISO/IEC 14496-12, 4.2)."""
    at = 0
    while at < size:
        stream.seek(at)
        head = stream.read(16)
        length = int.from_bytes(head[:4], "big")
        length = int.from_bytes(head[8:16], "big") if length == 1 else length or size - at
        if len(head) < 8 or length < 8:
            return
        yield head[4:8], at, at + length
        at += length


def _find_boxes_end(stream: BinaryIO, size: int) -> int:
    """Return the last box's stated end; more than the size if a box's head or a fragment's data are missing."""
    found = [*islice(boxes(stream, size), _MAX_BOXES)]
    end = max((stop for _, _, stop in found), default=0)
    stream.seek(end)
    rest = stream.read(8)
    is_torn = len(rest) < 8 and any(rest)  # QuickTime ends lists with zeros
    return size + 1 if is_torn or (end == size and found and found[-1][0] == b"moof") else end


def find_missing_index(stream: BinaryIO) -> MediaError | None:
    """Return the error of an MP4 or MOV without `moov`; None if a damaged box may have been it."""
    kinds = {name for name, _, _ in islice(boxes(stream, stream.seek(0, os.SEEK_END)), _MAX_BOXES)}
    if b"moof" in kinds and b"moov" not in kinds:
        message = "it is a segment of a stream (DASH, HLS) without the stream's header: join it to the first segment"
        return MediaError(Reason.UNSUPPORTED, message)
    if kinds <= _BESIDE_INDEX:
        return MediaError(Reason.TRUNCATED, "its index is missing, as in an interrupted recording")
    return None


def read_segment_end(stream: BinaryIO, start: int = 0) -> int:
    """Return the stated end of the first Segment of a Matroska file (RFC 9559) that starts here; 0 if unknown."""
    stream.seek(start)
    head = stream.read(1024)
    length, at = read_vint(head, 4)
    at += length or 0
    if head[at : at + 4] != b"\x18\x53\x80\x67":
        return 0
    length, at = read_vint(head, at + 4)
    return 0 if length is None else start + at + length


def read_vint(data: bytes, at: int) -> tuple[int | None, int]:
    """Return an EBML variable-size integer (RFC 8794, 4) and its end; None if all bits are set (size unknown)."""
    first = data[at] if at < len(data) else 0
    octets = 9 - first.bit_length() if first else 9
    value = int.from_bytes(data[at : at + octets], "big") & ((1 << 7 * octets) - 1)
    return (None if value == (1 << 7 * octets) - 1 else value), at + octets


def _find_footer(stream: BinaryIO, _: int) -> int:
    """Return more than the place of the last partition that an MXF states; 1 without any (SMPTE 377-1, 7.1)."""
    stream.seek(0)
    head = stream.read(64)
    at = 17 + (head[16] & 0x7F if head[16] & 0x80 else 0) + 24
    return int.from_bytes(head[at : at + 8], "big") + 1


CUT = (Reason.TRUNCATED, "the end of the file is missing")
_STATED_LENGTH: dict[str, Callable[[BinaryIO, int], int]] = {
    "WEBP": lambda stream, _: _read_number(stream, 4) + 8,
    "avi": lambda stream, _: (_read_number(stream, 4) + 8) % (1 << 32),  # of a pipe it is unknown: all ones
    "BMP": lambda stream, _: _read_number(stream, 2),
    "AVIF": _find_boxes_end,
    "HEIF": _find_boxes_end,
    "mov": _find_boxes_end,
    "mxf": _find_footer,
    "matroska": lambda stream, _: read_segment_end(stream),
}
_END_MARKS = {"JPEG": b"\xff\xd9", "JPEG2000": b"\xff\xd9", "PNG": b"IEND"}
_LAST_BYTES = {"GIF": b"\x3b", "mjpeg": b"\xff\xd9"}


_MIN_LIMIT = 10_000_000  # samples allowed in any file: 370 MB; three minutes of 48 kHz
_BLOCK = 1 << 20  # bytes of one read
_MAX_TABLES = 1 << 26  # bytes of decompressed tables, as for a day at 25 frames a second
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
_DATA_FLAGS = 0x0F  # bits of the second byte of flags: duration, size, flags, time offset
_MAX_MATCH = 28  # bytes of a match with the size before it
_COMPRESSED = re.compile(rb"cmvd....", re.S)


def check_sample_counts(stream: BinaryIO, *, truncated: bool) -> None:
    """Reject an ISO base media file with sample counts beyond its size; a truncated one may have been larger.

    The position of the stream is undefined after.
    Raises MediaError: TOO_LARGE.
    """
    size = stream.seek(0, os.SEEK_END)
    limit, samples = max(_MIN_LIMIT, 4 * size if truncated else size), 0
    for piece, seen in _read_pieces(stream, size):  # the first `seen` bytes were in the piece before too
        tables = [table for match in _COMPRESSED.finditer(piece) if (table := _decompress(piece[match.end() :]))]
        if any(_COMPRESSED.search(table) for table in tables) or (tables and len(piece) >= _BLOCK):
            raise MediaError(Reason.TOO_LARGE, "its tables are compressed in a way that cannot be checked")
        samples += _count_stated(piece, seen, size) + sum(_count_stated(table, 0, size) for table in tables)
        if samples > limit:
            raise MediaError(
                Reason.TOO_LARGE, f"its tables state {samples:,} samples, more than {size:,} bytes can hold"
            )


def _count_stated(data: bytes, seen: int, size: int) -> int:
    sizes = [match[1] for pattern in _SIZES for match in pattern.finditer(data) if match.end() > seen]
    runs = [match for pattern in _RUNS for match in pattern.finditer(data) if match.end() > seen]
    total = sum(int.from_bytes(number, "big") for number in sizes)
    for box, flags, samples in (run.groups() for run in runs):  # samples beyond the box's data
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


LARGE_HOLE = 1 << 30
"""Least bytes of an unwritten stretch: decoders read over smaller ones in a second or two."""


def check_written(stream: BinaryIO) -> None:
    """Check that a file has no large unwritten stretch, as after an interrupted download or copy.

    Only the disk's map of the file is read. Stores and file systems without such a map count as written.
    Raises MediaError: TRUNCATED.
    """
    if (place := _find_hole(stream)) is not None:
        raise MediaError(
            Reason.TRUNCATED, f"it is sparse: from byte {place:,} on, {LARGE_HOLE:,} bytes or more were never written"
        )


def _find_hole(stream: BinaryIO) -> int | None:
    """Return where the first large hole begins; None if there is none."""
    if not isinstance(stream, io.BufferedReader) or not hasattr(os, "SEEK_HOLE"):
        return None
    handle, at = stream.fileno(), 0
    size, before = os.fstat(handle).st_size, os.lseek(handle, 0, os.SEEK_CUR)
    try:
        while size - at >= LARGE_HOLE:
            hole = os.lseek(handle, at, os.SEEK_HOLE)
            try:
                at = os.lseek(handle, hole, os.SEEK_DATA)
            except OSError as exc:
                if exc.errno != errno.ENXIO:
                    raise
                at = size  # no data up to the end
            if at - hole >= LARGE_HOLE:
                return hole
    except OSError:  # a file system without a map
        return None
    finally:
        os.lseek(handle, before, os.SEEK_SET)  # the stream's own position
    return None
