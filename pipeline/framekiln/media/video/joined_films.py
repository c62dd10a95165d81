"""Films that were joined, as by `cat`, where libav reads the first ones and says nothing of the rest.

Transport streams have a module of their own, since all their parts are read. libav reads joined AVI and MPEG program
streams to their end, two parts of Matroska, and one of MP4, FLV and ASF.
"""

import os
from itertools import islice
from typing import BinaryIO

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.damaged import boxes, read_segment_end
from framekiln.media.file_types import Kind

_MOST = 10_000  # boxes and tags that are looked at
_EBML, _ASF = b"\x1aE\xdf\xa3", b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"


def find_unread(stream: BinaryIO, kind: Kind, last: int) -> list[MediaError]:
    """Return an error if parts of a film are not read. `last`: place of its last packet."""
    size = stream.seek(0, os.SEEK_END)
    if kind.name == "mov":
        unread = [name for name, _, _ in islice(boxes(stream, size), _MOST)].count(b"moov") > 1
    elif kind.name == "matroska":
        second = read_segment_end(stream)
        unread = second > 0 and _begins(stream, read_segment_end(stream, second), _EBML)
    else:
        unread = kind.name in ("flv", "asf") and _has_other_head(stream, kind, last, size)
    message = "it was joined of films, and the last ones are not read: split it"
    return [MediaError(Reason.UNSUPPORTED, message)] if unread else []


def _has_other_head(stream: BinaryIO, kind: Kind, last: int, size: int) -> bool:
    """Return whether a head follows the tags of FLV from one on, or the objects of ASF."""
    at, is_flv = (last if kind.name == "flv" else 0), kind.name == "flv"
    for _ in range(_MOST):
        if not 0 <= at < size:
            return False
        if at and _begins(stream, at, b"FLV\x01" if is_flv else _ASF):
            return True
        stream.seek(at if is_flv else at + 16)
        length = stream.read(8)
        at += 15 + int.from_bytes(length[1:4], "big") if is_flv else max(24, int.from_bytes(length, "little"))
    return False


def _begins(stream: BinaryIO, at: int, mark: bytes) -> bool:
    stream.seek(at)
    return at > 0 and stream.read(len(mark)) == mark
