"""Whether a file's end is missing: decoders call a half-copied and a damaged file the same, users want to know which.

Formats that state their own length are believed; for the others the mark is sought with which they end.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from pipeline.media.sniff import Kind

_TAIL = 4096  # bytes at the end in which an end mark must lie: cameras and editors append a little of their own
_MOST_BOXES = 10_000  # a fragmented film has two boxes a second


def is_cut(stream: BinaryIO, kind: Kind) -> bool:
    """Whether the file states, or its missing end mark shows, that bytes are missing at its end.

    False where its format does not tell (TIFF, MPEG, FLV, Ogg). The stream is left anywhere.
    """
    size = stream.seek(0, os.SEEK_END)
    if kind.name in ("WEBP", "avi"):
        return _number(stream, 4, 4, "little") + 8 > size
    if kind.name == "BMP":
        return _number(stream, 2, 4, "little") > size
    if kind.name in ("AVIF", "mov"):
        return _boxes_end(stream, size) > size
    if kind.name == "matroska":
        return _segment_end(stream) > size
    mark = {"JPEG": b"\xff\xd9", "PNG": b"IEND", "GIF": b"\x3b"}.get(kind.name)
    if mark is None:
        return False
    stream.seek(max(0, size - _TAIL))
    return mark not in (stream.read() if kind.name != "GIF" else stream.read().rstrip(b"\x00")[-1:])


def _number(stream: BinaryIO, at: int, size: int, order: str) -> int:
    stream.seek(at)
    return int.from_bytes(stream.read(size), "big" if order == "big" else "little")


def _boxes_end(stream: BinaryIO, size: int) -> int:
    """Where the last top-level box of an ISO base media file says it ends (ISO/IEC 14496-12, 4.2)."""
    at = 0
    for _ in range(_MOST_BOXES):
        stream.seek(at)
        head = stream.read(16)
        if len(head) < 8:
            return at
        length = int.from_bytes(head[:4], "big")
        if length == 1:
            length = int.from_bytes(head[8:16], "big")
        if length < 8 or at + length > size:
            return at + length if length >= 8 else at
        at += length
    return at


def _segment_end(stream: BinaryIO) -> int:
    """Where the first Segment of a Matroska file (RFC 9559) says it ends; 0 where it is left open."""
    stream.seek(0)
    head = stream.read(1024)
    at = 4
    length, at = _vint(head, at)
    at += length or 0
    if head[at : at + 4] != b"\x18\x53\x80\x67":
        return 0
    length, at = _vint(head, at + 4)
    return 0 if length is None else at + length


def _vint(data: bytes, at: int) -> tuple[int | None, int]:
    """An EBML variable-size integer (RFC 8794, 4) and where it ends; None when all its bits are set: size unknown."""
    first = data[at] if at < len(data) else 0
    octets = 9 - first.bit_length() if first else 9
    value = int.from_bytes(data[at : at + octets], "big") & ((1 << 7 * octets) - 1)
    return (None if value == (1 << 7 * octets) - 1 else value), at + octets
