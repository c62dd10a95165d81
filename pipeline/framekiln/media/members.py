"""Members of TAR and ZIP archives, read in place: an uncompressed one is a range of the archive's bytes.

A member's path is the archive's path, NUL, and its place: `tar:OFFSET:NAME` or `zip:HEADER:METHOD:PACKED:CRC:NAME`. No
path of a file has a NUL. A compressed member is unpacked into memory, above 64 MB into a temporary file.
"""

import io
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from typing import IO, BinaryIO, cast

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.stream_view import StreamView

_MARK = "\0"
_HEADER = struct.Struct("<4s22xHH")  # header of a ZIP's member, before name and extra field (APPNOTE.TXT, 4.3.7)
_STORED, _DEFLATED, ENCRYPTED = 0, 8, -1  # compression methods of a ZIP
NOT_INSIDE = -1  # place of a TAR's link, device or sparse file
_PIECE, _IN_MEMORY = 1 << 18, 64 << 20  # bytes
_MOST_UNPACKED = 4 << 30
"""Most bytes of a compressed member: videos are hardly ever compressed, and a member of 4 MB may claim this many."""


def member_path(archive: str, name: str, *place: str | int) -> str:
    """Return the path of a member; its `place` begins with the archive's kind."""
    return f"{archive}{_MARK}{':'.join(map(str, place))}:{name}"


def split_member(path: str) -> tuple[str, tuple[str, ...], str]:
    """Return an archive's path, a member's place and its name; an empty place for other files."""
    archive, _, place = path.partition(_MARK)
    parts = place.split(":", 5 if place.startswith("zip") else 2)
    return archive, tuple(parts[:-1]), parts[-1]


def open_member(stream: BinaryIO, place: tuple[str, ...], size: int) -> BinaryIO:
    """Return a member of an open archive, by its place and size in bytes; it closes the archive with it.

    Raises MediaError: UNSUPPORTED (encrypted, or compressed in another way), TOO_LARGE, TRUNCATED or CORRUPT.
    """
    kind, *numbers = place[0], *map(int, place[1:])
    if kind == "tar" and numbers[0] == NOT_INSIDE:
        raise MediaError(Reason.UNREADABLE, "a link, a device or a sparse file in a TAR archive; unpack it")
    if kind == "tar":
        return cast("BinaryIO", _Window(stream, numbers[0], size))
    header, method, packed, checksum = numbers
    if method not in (_STORED, _DEFLATED):
        what = "encrypted" if method == ENCRYPTED else "compressed in a way that is not read"
        raise MediaError(Reason.UNSUPPORTED, f"this member of a ZIP archive is {what}; unpack the archive")
    stream.seek(header)
    head = stream.read(_HEADER.size)
    if len(head) < _HEADER.size or head[:4] != b"PK\x03\x04":
        raise MediaError(Reason.CORRUPT, "the ZIP archive has no member where its index says")
    _, name, extra = _HEADER.unpack(head)
    window = _Window(stream, header + _HEADER.size + name + extra, packed)
    return cast("BinaryIO", window) if method == _STORED else _unpack(window, packed, size, checksum)


class _Window(StreamView):
    """A range of bytes of an open file; it ends where the file does."""

    def __init__(self, stream: BinaryIO, start: int, size: int) -> None:
        super().__init__(stream, max(0, min(size, stream.seek(0, os.SEEK_END) - start)))
        self._start = start
        if size and not self._size:
            raise MediaError(Reason.TRUNCATED, "the archive ends before this member")

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed's protocol of buffers
        self._stream.seek(self._start + self._at)
        data = self._stream.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _unpack(window: _Window, packed: int, size: int, checksum: int) -> BinaryIO:
    if size > _MOST_UNPACKED:
        raise MediaError(Reason.TOO_LARGE, f"unpacked it has {size:,} bytes, the limit is {_MOST_UNPACKED:,}")
    member = zipfile.ZipInfo()
    member.compress_type, member.compress_size, member.file_size, member.CRC = _DEFLATED, packed, size, checksum
    result: IO[bytes] = io.BytesIO() if size <= _IN_MEMORY else tempfile.TemporaryFile()  # noqa: SIM115 - by the caller
    try:
        with window, zipfile.ZipExtFile(cast("IO[bytes]", window), "r", member) as content:
            shutil.copyfileobj(content, result, _PIECE)
    except EOFError as exc:
        raise MediaError(Reason.TRUNCATED, "the ZIP archive ends before this member does") from exc
    except (zlib.error, zipfile.BadZipFile) as exc:
        raise MediaError(Reason.CORRUPT, f"a member of a ZIP archive: {exc}") from exc
    if result.tell() != size:
        raise MediaError(Reason.CORRUPT, "the ZIP archive has other bytes than its index states")
    result.seek(0)
    return cast("BinaryIO", result)
