"""Holes in films, as after a bad copy or a lost block, and the places where another film begins.

libav reads joined AVI, Ogg and MPEG program streams of one codec to their end, two parts of Matroska, and one of MP4,
FLV, ASF, RealMedia, IVF and YUV4MPEG. It reads no part in another container. From the second of two fragmented MP4, or
of two Matroska with other tracks, it reads some packets as if they belonged to the first. `transport_stream` reads all
parts of transport streams; `damaged` handles formats that state their length.

libav reads on after a hole, with a wrong frame before it, or silently with fewer frames. In these formats each piece
says where the next one begins. So pieces lead from one packet to the next, unless there is a hole.
"""

import os
import re
from collections.abc import Callable
from typing import BinaryIO

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.damaged import CUT, read_segment_end, read_vint
from framekiln.media.file_types import HEAD_BYTES, Kind, find_film

_SHORTEST_BOX, _SHORTEST_PIECE, _TO_THE_END = 8, 27, 1 << 62  # bytes
_END, _PACK, _MPEG_2 = 0xB9, 0xBA, 0x40  # codes of a program stream, and a bit of MPEG-2's packs
_LONGEST_PAGE = 27 + 255 * 256  # bytes, of Ogg
_TRACKS = re.compile(rb"\x16\x54\xae\x6b(?!\x53\xac)", re.S)  # but for its entry in the list of elements
_NO_MEANING = re.compile(rb"\x73\xc5\x88.{8}|\xbf\x84.{4}", re.S)  # random numbers of tracks, and checksums
_PACK_MARK = b"\0\0\1\xba"


def _read_box(head: bytes) -> int:
    size = int.from_bytes(head[8:16] if head[:4] == b"\0\0\0\1" else head[:4], "big")
    return (size if size >= _SHORTEST_BOX else _TO_THE_END) if head[4:8].isalnum() else 0


def _read_pack(head: bytes) -> int:
    """Return the length of a packet, of a pack's header or of the end of a program (ISO/IEC 13818-1, 2.5.3)."""
    if head[:3] != b"\0\0\1" or head[3] < _END:
        return 0
    if head[3] > _PACK:
        return 6 + int.from_bytes(head[4:6], "big")
    return 4 if head[3] == _END else 14 + (head[13] & 7) if head[4] & _MPEG_2 else 12


# The length of a container's piece by its first bytes; 0 if it is no piece of this container.
LENGTHS: dict[str, Callable[[bytes], int]] = {
    "mov": _read_box,
    "mpeg": _read_pack,
    "avi": lambda head: 8 + (int.from_bytes(head[4:8], "little") + 1) // 2 * 2 if head[:4] == b"RIFF" else 0,
    "asf": lambda head: max(24, int.from_bytes(head[16:24], "little")),
    "flv": lambda head: 15 + int.from_bytes(head[1:4], "big") if head[0] in b"\x08\x09\x12" else 0,
    "ogg": lambda head: 27 + head[26] + sum(head[27 : 27 + head[26]]) if head[:4] == b"OggS" else 0,
    "rm": lambda head: int.from_bytes(head[4:8], "big") if head[1:4].isalnum() else 0,
}
_FROM_LAST = ("flv", "ogg", "mpeg")  # formats whose parts are followed from the last packet on
HEADS = {"ivf": 12, "yuv4mpegpipe": 0, "obu": 0, "dv": 0}
"""Bytes before each packet, for formats that consist of packets only."""
_WITHOUT_LENGTH = (*_FROM_LAST, "asf", "rm", *HEADS)
_SLACK = {"flv": 4, "rm": 16}  # bytes: FLV's last length, which some recorders omit; what ffmpeg counts too much


def find_unread(stream: BinaryIO, kind: Kind, last: int) -> list[MediaError]:
    """Return an error if parts of a film are missing or not read.

    `last`: place of the last packet; for formats in `HEADS`, the end of the last whole one.
    """
    end, size = _find_end(stream, kind, last), stream.seek(0, os.SEEK_END)
    if 0 < end < size and kind.name not in ("dv", "obu") and find_film(_read_head(stream, end)):
        message = "it was joined from several videos, and the last ones are not read: split it"
        return [MediaError(Reason.UNSUPPORTED, message)]
    if kind.name == "ogg" and end < size and b"OggS" in _read_head(stream, end, _LONGEST_PAGE):
        return [MediaError(Reason.CORRUPT, "bytes are missing in its middle")]
    is_cut = end > size + _SLACK.get(kind.name, 0) or (kind.name in HEADS and end < size)
    return [MediaError(*CUT)] if is_cut and kind.name in _WITHOUT_LENGTH else []


def find_join(stream: BinaryIO, kind: Kind) -> int | None:
    """Return where another video begins whose packets libav takes for this one's; None without one."""
    end = _find_end(stream, kind, 0) if kind.name in ("mov", "matroska") else 0
    return end if end and find_film(_read_head(stream, end)) else None


def _read_tracks(stream: BinaryIO, at: int) -> bytes:
    """Return the tracks' description in a Matroska file that starts here; empty if its head has none."""
    head = _read_head(stream, at)
    if not (found := _TRACKS.search(head)):
        return b""
    length, body = read_vint(head, found.end())
    return _NO_MEANING.sub(b"", head[body : body + (length or 0)])


def _find_end(stream: BinaryIO, kind: Kind, last: int) -> int:
    """Return the end of the pieces that libav reads as one video; 0 if unknown."""
    if kind.name in HEADS:
        return last
    if kind.name == "matroska":
        end = read_segment_end(stream)
        is_same = end > 0 and _read_tracks(stream, 0) == _read_tracks(stream, end)
        return (read_segment_end(stream, end) or end) if is_same else end
    size, length_of = stream.seek(0, os.SEEK_END), LENGTHS.get(kind.name)
    at, tables, clock = last if kind.name in _FROM_LAST else 0, 0, b""
    if kind.name == "mpeg":  # from the pack before, for its clock
        before = _read_head(stream, max(0, last - HEAD_BYTES))[:last]
        at -= len(before) - max(0, before.rfind(_PACK_MARK))
    for _ in range(_MOST):
        if at >= size:
            return at
        if kind.name == "rm" and at:
            less = _read_head(stream, at - _SLACK["rm"])[: _SLACK["rm"] + 4].find(b".RMF")
            at -= _SLACK["rm"] - less if less >= 0 else 0
        head = _read_head(stream, at).ljust(_SHORTEST_PIECE, b"\0")
        tables += head[4:8] == b"moov"
        is_next = (
            tables > 1
            or (tables > 0 and head[4:8] == b"ftyp")
            or (kind.name in ("asf", "rm") and at > 0 and find_film(head))
        )
        if kind.name == "mpeg" and head.startswith(_PACK_MARK):  # a later clock is a greater number
            is_next, clock = bool(clock) and (head[4:9] < clock or head[4] >> 6 != clock[0] >> 6), head[4:9]
        length = length_of(head) if length_of and not is_next else 0
        if not length:
            break
        at += length
    return at


def _read_head(stream: BinaryIO, at: int, size: int = HEAD_BYTES) -> bytes:
    stream.seek(at)
    return stream.read(size)


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
        return self._walk(start, stop) in (start, stop)  # if it stays at the start, packets of this file are no pieces

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
