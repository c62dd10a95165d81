"""Films that libav reads in part without a word: they were cut, or joined, as by `cat`.

Transport streams have a module of their own, since all their parts are read. libav reads joined AVI, Ogg and MPEG
program streams of one codec to their end, two parts of Matroska, and one of MP4, FLV, ASF, IVF and YUV4MPEG. It reads
no part in another container. Formats that state their length are in `damaged`.
"""

import os
from collections.abc import Callable
from typing import BinaryIO

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.damaged import CUT, read_segment_end
from framekiln.media.file_types import HEAD_BYTES, Kind, find_film

_MOST = 10_000  # pieces that are looked at
_SHORTEST_BOX, _SHORTEST_PIECE, _TO_THE_END = 8, 27, 1 << 62  # bytes
_END, _PACK, _MPEG_2 = 0xB9, 0xBA, 0x40  # of a program stream: codes, and a bit of MPEG-2's packs
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


# The length of a container's piece by its first bytes; 0 where it is none of this container.
_LENGTHS: dict[str, Callable[[bytes], int]] = {
    "mov": _read_box,
    "mpeg": _read_pack,
    "avi": lambda head: 8 + (int.from_bytes(head[4:8], "little") + 1) // 2 * 2 if head[:4] == b"RIFF" else 0,
    "asf": lambda head: max(24, int.from_bytes(head[16:24], "little")),
    "flv": lambda head: 15 + int.from_bytes(head[1:4], "big") if head[0] in b"\x08\x09\x12" else 0,
    "ogg": lambda head: 27 + head[26] + sum(head[27 : 27 + head[26]]) if head[:4] == b"OggS" else 0,
    "rm": lambda head: int.from_bytes(head[4:8], "big") if head[1:4].isalnum() else 0,
}
_FROM_LAST = ("flv", "ogg", "mpeg")  # whose pieces are followed from that of the last packet
HEADS = {"ivf": 12, "yuv4mpegpipe": 0, "obu": 0, "dv": 0}
"""Bytes before each packet of the formats that are packets and nothing else."""
_WITHOUT_LENGTH = (*_FROM_LAST, "asf", "rm", *HEADS)
_SLACK = {"flv": 4, "rm": 16}  # bytes: FLV's last length, which some recorders omit; what ffmpeg counts too much


def find_unread(stream: BinaryIO, kind: Kind, last: int) -> list[MediaError]:
    """Return an error if parts of a film are missing or not read.

    `last`: place of its last packet, of the formats in `HEADS` the end of its last whole one.
    """
    end, size = _find_end(stream, kind, last), stream.seek(0, os.SEEK_END)
    if 0 < end < size and kind.name not in ("dv", "obu") and find_film(_read_head(stream, end)):
        message = "it was joined of films, and the last ones are not read: split it"
        return [MediaError(Reason.UNSUPPORTED, message)]
    is_cut = end > size + _SLACK.get(kind.name, 0) or (kind.name in HEADS and end < size)
    return [MediaError(*CUT)] if is_cut and kind.name in _WITHOUT_LENGTH else []


def _find_end(stream: BinaryIO, kind: Kind, last: int) -> int:
    """Return where the pieces end that libav reads as one film; 0 if that is unknown."""
    if kind.name in HEADS:
        return last
    if kind.name == "matroska":
        end = read_segment_end(stream)
        return (read_segment_end(stream, end) or end) if end else 0
    size, length_of = stream.seek(0, os.SEEK_END), _LENGTHS.get(kind.name)
    at, tables, clock = last if kind.name in _FROM_LAST else 0, 0, b""
    if kind.name == "mpeg":  # from the pack before, for its clock
        before = _read_head(stream, max(0, last - HEAD_BYTES))[:last]
        at -= len(before) - max(0, before.rfind(_PACK_MARK))
    for _ in range(_MOST):
        if at >= size:
            return at
        head = _read_head(stream, at).ljust(_SHORTEST_PIECE, b"\0")
        tables += head[4:8] == b"moov"
        is_next = tables > 1 or (kind.name in ("asf", "rm") and at > 0 and find_film(head))
        if kind.name == "mpeg" and head.startswith(_PACK_MARK):  # a later clock is a greater number
            is_next, clock = bool(clock) and (head[4:9] < clock or head[4] >> 6 != clock[0] >> 6), head[4:9]
        length = length_of(head) if length_of and not is_next else 0
        if not length:
            break
        at += length
    return at


def _read_head(stream: BinaryIO, at: int) -> bytes:
    stream.seek(at)
    return stream.read(HEAD_BYTES)
