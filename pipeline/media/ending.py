"""Whether a file's end is missing: decoders call a half-copied and a damaged file the same, users want to know which.

Formats that state their own length are believed; for the others the mark is sought with which they end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO, Literal

from pipeline.media.sniff import Kind

_TAIL = 4096  # bytes at the end in which an end mark must lie: cameras and editors append a little of their own
_MOST_BOXES = 10_000  # a fragmented film has two boxes a second


def is_cut(stream: BinaryIO, kind: Kind) -> bool:
    """Whether the file states, or its missing end mark shows, that bytes are missing at its end.

    False where its format does not tell (TIFF, MPEG program streams, FLV, Ogg). The stream is left anywhere.
    """
    size = stream.seek(0, os.SEEK_END)
    said = _SAYS_LENGTH.get(kind.name)
    if said:
        return said(stream, size) > size
    if kind.name == "mpegts":
        return bool(size % 188 and size % 192)
    stream.seek(max(0, size - _TAIL))
    tail = stream.read()
    if kind.name == "GIF":
        return tail.rstrip(b"\x00")[-1:] != b"\x3b"
    return kind.name in _END_MARKS and _END_MARKS[kind.name] not in tail


def _number(stream: BinaryIO, at: int, order: Literal["little", "big"]) -> int:
    stream.seek(at)
    return int.from_bytes(stream.read(4), order)


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


_SAYS_LENGTH: dict[str, Callable[[BinaryIO, int], int]] = {
    "WEBP": lambda stream, _: _number(stream, 4, "little") + 8,
    "avi": lambda stream, _: _number(stream, 4, "little") + 8,
    "BMP": lambda stream, _: _number(stream, 2, "little"),
    "AVIF": _boxes_end,
    "mov": _boxes_end,
    "matroska": lambda stream, _: _segment_end(stream),
}
_END_MARKS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}
