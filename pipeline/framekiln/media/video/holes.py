"""Holes in videos: bytes missing in the middle, as after a bad copy or a lost block.

libav reads on after a hole, with a wrong frame before it, or silently with fewer frames. In these formats each piece
says where the next one begins. So pieces lead from one packet to the next, unless there is a hole.
"""

from collections.abc import Callable
from typing import BinaryIO

from framekiln.media.damaged import read_vint
from framekiln.media.file_types import HEAD_BYTES, Kind
from framekiln.media.video.joined_films import LENGTHS

_INSIDE = {bytes.fromhex(name) for name in ("a0", "1f43b675", "18538067")}  # groups of blocks, clusters, segments
_ELEMENTS = "a3 a1 e7 ab a7 af ec bf fb fd fa c8 9b a4 75a1 75a2 5854 1a45dfa3 1c53bb6b 114d9b74 1549a966 1654ae6b"
_BESIDE = {bytes.fromhex(name) for name in f"{_ELEMENTS} 1254c367 1941a469 1043a770".split()}  # RFC 9559
_BLOCKS = b"\xa3\xa1"  # elements that hold a packet
_LISTS = (b"LIST", b"RIFF")
_UNKNOWN = (b"\0\0\0\0", b"\xff\xff\xff\xff")  # length of an AVI in an interrupted recording, or from a pipe
_KEY = b"\x06\x0e\x2b\x34"  # key of SMPTE
_LONGEST_HEAD = 27 + 255  # bytes, of a page
_MOST = 10_000  # most pieces examined between two packets
_PACKET_SIZE = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")  # ASF's properties; the size follows 92 bytes later


def _read_element(head: bytes) -> int:
    """Return the length of a Matroska element, or of its head if it holds packets (RFC 8794)."""
    _, width = read_vint(head, 0)
    length, at = read_vint(head, width)
    return at if head[:width] in _INSIDE else at + (length or 0) if head[:width] in _BESIDE else 0


def _read_chunk(head: bytes) -> int:
    if not head[:4].isalnum():
        return 0
    return 12 if head[:4] in _LISTS else 8 + (int.from_bytes(head[4:8], "little") + 1) // 2 * 2


def _read_klv(head: bytes) -> int:
    """Return the length of a triplet of an MXF (SMPTE 336M)."""
    octets = head[16] & 0x7F if head[16] & 0x80 else 0
    length = int.from_bytes(head[17 : 17 + octets], "big") if octets else head[16]
    return 17 + octets + length if head[:4] == _KEY else 0


_LENGTHS: dict[str, Callable[[bytes], int]] = {
    "avi": _read_chunk,
    "flv": LENGTHS["flv"],
    "matroska": _read_element,
    "mxf": _read_klv,
    "ogg": LENGTHS["ogg"],
}


class Pieces:
    """The pieces of an open film."""

    def __init__(self, stream: BinaryIO, kind: Kind) -> None:
        self._stream, self._kind = stream, kind.name
        self._step = 0  # bytes of each packet of an ASF
        if kind.name == "asf":
            head = self._read(0, HEAD_BYTES)
            at = head.find(_PACKET_SIZE) + 92
            self._step = int.from_bytes(head[at : at + 4], "little") if at >= 92 else 0

    def lead(self, before: int | None, after: int | None) -> bool:
        """Return whether the pieces from one packet's place lead to the next one's; True if unknown."""
        if before is None or after is None or after <= before:
            return True
        if self._step:
            return (after - before) % self._step == 0
        if self._kind not in _LENGTHS:
            return True
        start, stop = self._find_start(before), self._find_start(after)
        return self._walk(start, stop) in (
            start,
            stop,
        )  # if it stays at the start, packets of this file are no pieces

    def is_cut(self, last: int | None, size: int) -> bool:
        """Return whether a piece after the last packet's place lacks its end; False for formats that state theirs."""
        has_pieces = self._kind == "matroska" or (self._kind == "avi" and self._read(4, 4) in _UNKNOWN)
        return has_pieces and last is not None and self._walk(self._find_start(last), size) > size

    def _walk(self, at: int, stop: int) -> int:
        """Return where the pieces lead: to `stop` or past it, or to something that is no piece."""
        for _ in range(_MOST):
            length = _LENGTHS[self._kind](self._read(at)) if at < stop else 0
            if not length:
                return at
            at += length
        return stop

    def _find_start(self, at: int) -> int:
        """Return where a packet's piece begins; for AVI and Matroska libav gives the place after its head."""
        if self._kind != "matroska":
            return at - 8 * (self._kind == "avi")
        head = self._read(max(0, at - 9))[: min(9, at)]
        for width in range(1, min(9, len(head))):
            if head[-width - 1] in _BLOCKS and 9 - head[-width].bit_length() == width:
                return at - width - 1
        return at

    def _read(self, at: int, size: int = _LONGEST_HEAD) -> bytes:
        place = self._stream.tell()  # libav reads on here
        self._stream.seek(at)
        head = self._stream.read(size)
        self._stream.seek(place)
        return head.ljust(size, b"\0")
