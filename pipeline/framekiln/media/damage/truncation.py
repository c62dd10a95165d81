"""Detection of truncated files: decoders report truncation and damage alike, but users need to distinguish them.

A format's stated length is trusted. For other formats, the end marker is searched for.
"""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import BinaryIO, Literal

from framekiln.media.file_types import Kind

_TAIL = 4096  # bytes at the end that must contain the end marker: cameras and editors append some data
_MAX_BOXES = 10_000  # a fragmented film has two boxes a second


def is_truncated(stream: BinaryIO, kind: Kind) -> bool:
    """Return whether the end is missing, by the stated length or a missing end marker.

    False for formats with neither (TIFF, MPEG program streams, FLV, Ogg). The stream's position is undefined after.
    """
    size = stream.seek(0, os.SEEK_END)
    stated_length = _STATED_LENGTH.get(kind.name)
    if stated_length:
        return stated_length(stream, size) > size
    if kind.name == "mpegts":
        return bool(size % 188 and size % 192)
    stream.seek(max(0, size - _TAIL))
    tail = stream.read()
    if kind.name == "GIF":
        return tail.rstrip(b"\x00")[-1:] != b"\x3b"
    return kind.name in _END_MARKS and _END_MARKS[kind.name] not in tail


def _read_number(stream: BinaryIO, at: int, order: Literal["little", "big"]) -> int:
    stream.seek(at)
    return int.from_bytes(stream.read(4), order)


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
    """Return the last box's stated end, or more than the size where a box's head or a fragment's data are missing."""
    found = [*islice(boxes(stream, size), _MAX_BOXES)]
    end = max((stop for _, _, stop in found), default=0)
    stream.seek(end)
    rest = stream.read(8)
    is_torn = len(rest) < 8 and any(rest)  # QuickTime ends lists with zeros
    return size + 1 if is_torn or (end == size and found and found[-1][0] == b"moof") else end


def _read_segment_end(stream: BinaryIO) -> int:
    """Return the stated end of the first Segment of a Matroska file (RFC 9559); 0 if it is unknown."""
    stream.seek(0)
    head = stream.read(1024)
    at = 4
    length, at = _read_vint(head, at)
    at += length or 0
    if head[at : at + 4] != b"\x18\x53\x80\x67":
        return 0
    length, at = _read_vint(head, at + 4)
    return 0 if length is None else at + length


def _read_vint(data: bytes, at: int) -> tuple[int | None, int]:
    """Return an EBML variable-size integer (RFC 8794, 4) and its end; None if all bits are set (size unknown)."""
    first = data[at] if at < len(data) else 0
    octets = 9 - first.bit_length() if first else 9
    value = int.from_bytes(data[at : at + octets], "big") & ((1 << 7 * octets) - 1)
    return (None if value == (1 << 7 * octets) - 1 else value), at + octets


_STATED_LENGTH: dict[str, Callable[[BinaryIO, int], int]] = {
    "WEBP": lambda stream, _: _read_number(stream, 4, "little") + 8,
    "avi": lambda stream, _: _read_number(stream, 4, "little") + 8,
    "BMP": lambda stream, _: _read_number(stream, 2, "little"),
    "AVIF": _find_boxes_end,
    "HEIF": _find_boxes_end,
    "mov": _find_boxes_end,
    "matroska": lambda stream, _: _read_segment_end(stream),
}
_END_MARKS = {"JPEG": b"\xff\xd9", "JPEG2000": b"\xff\xd9", "PNG": b"IEND"}
