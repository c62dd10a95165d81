"""Videos that libav silently reads in part: they were cut, or joined, as by `cat`.

All parts of transport streams are read, in a module of their own. libav reads joined AVI, Ogg and MPEG program streams
of one codec to their end. Of Matroska it reads two parts; of MP4, FLV, ASF, RealMedia, IVF and YUV4MPEG one. It reads
no part in another container. From the second of two fragmented MP4, or of two Matroska with other tracks, it reads some
packets as if they belonged to the first. `damaged` handles formats that state their length.
"""

import os
import re
from collections.abc import Callable
from typing import BinaryIO

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.damaged import CUT, read_segment_end, read_vint
from framekiln.media.file_types import HEAD_BYTES, Kind, find_film

_MOST = 10_000  # most pieces examined
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
    """Return the place of a second video if libav takes its packets for this one's; else None."""
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
