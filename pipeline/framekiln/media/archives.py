"""The members of TAR and ZIP archives as files named `shard.tar/member`, found without unpacking anything.

An archive is recognised by name and content. The members before the damage of a damaged archive are files too, and the
archive itself is a row in the errors table. So is an archive without media, as passed over.
"""

import struct
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.file_types import has_ending, is_of_media, is_tar
from framekiln.media.files import MediaFile, open_media
from framekiln.media.media_ids import is_hidden, media_id
from framekiln.media.members import ENCRYPTED, NOT_INSIDE, member_path, split_member

_ENDINGS, _AT_ONCE = (".tar", ".zip"), 16
_MOST = 1_000_000  # members of one archive: half a kilobyte each in the driver's memory
_MOST_INDEX = 256 << 20  # bytes of a ZIP's index, which zipfile reads at once
_MOST_HEADER = 1 << 20  # bytes of a TAR's long name or extended header
_MOST_FILLING = 1 << 20  # bytes of zeros between joined TARs: tar writes up to 10,240
_NO_FILES = (b"V", b"D", b"M")  # GNU tar's labels and lists of folders, and the rest of a file from another volume
_BLOCK = 512  # bytes: POSIX.1-2017, pax Interchange Format
_LOCAL = struct.Struct("<4s2xHH4xIIIHH")  # flags, method, checksum, packed and full size, lengths of name and field
_ENCRYPTED, _SIZES_FOLLOW, _UTF_8 = 1, 8, 0x800  # flags


def is_archive(name: str, head: bytes) -> bool:
    """Return whether a file is an archive, by its name and its first bytes. A TAR without members is zeros."""
    begins = is_tar(head) or head.startswith((b"PK\x03\x04", b"PK\x05\x06")) or _is_filling(head)
    return _is_archive_name(name) and begins


def _is_filling(data: bytes) -> bool:
    return 2 * _BLOCK <= len(data) <= _MOST_FILLING and not any(data)


def _is_archive_name(name: str) -> bool:
    return name[-4:].lower() in _ENDINGS


@dataclass
class Archive:
    """The members of one archive, and its damage."""

    media: MediaFile
    members: list[MediaFile] = field(default_factory=list)
    error: MediaError | None = None

    @classmethod
    def read(cls, media: MediaFile) -> "Archive":
        """Read the list of members. Keep an error of any kind, with the members before it."""
        result = cls(media)
        try:
            with open_media(media) as stream:
                result._list(stream)
        except MediaError as exc:
            if exc.reason is Reason.UNREACHABLE:  # without a listing its members would be lost without a word
                raise
            result.error = exc
        except tarfile.ReadError as exc:
            reason = Reason.TRUNCATED if "unexpected end" in str(exc) or "truncated" in str(exc) else Reason.CORRUPT
            result.error = MediaError(reason, f"TAR: {exc}")
        except Exception as exc:  # errors of both libraries, for any damage
            result.error = MediaError(Reason.CORRUPT, f"the archive: {exc or type(exc).__name__}")
        return result

    @property
    def verdict(self) -> MediaError:
        """The error of the archive itself, which is a file without frames."""
        no_media = f"passed over, not media: an archive without {'photos or films' if self.members else 'members'}"
        return self.error or MediaError(Reason.PASSED_OVER, no_media)

    @property
    def files(self) -> list[MediaFile]:
        """Return the archive's members, and the archive itself if it is damaged or has no media."""
        names = [member.media_id for member in self.members]
        found = self.members if any(map(is_of_media, names)) or not any(map(has_ending, names)) else []
        return [*found, *([self.media] if self.error or not found else [])]

    def _list(self, stream: BinaryIO) -> None:
        head = stream.read(_BLOCK)
        if split_member(self.media.path)[1]:
            raise MediaError(Reason.PASSED_OVER, "passed over: an archive inside another one; unpack it")
        if not any(head):
            if not _is_filling(head + stream.read(_MOST_FILLING)):
                raise MediaError(Reason.CORRUPT, "TAR: it begins with zeros")
            return
        if not is_tar(head):
            self._list_zip(stream)
            return
        start: int | None = 0
        while start is not None:  # several if TARs were joined
            stream.seek(start)
            start = self._list_one_tar(stream)

    def _add(self, name: str, size: int, *place: str | int) -> None:
        name = name.removeprefix("./")
        if any(is_hidden(part) and part not in (".", "..") for part in name.split("/")):
            return  # hidden, as in folders
        if len(self.members) >= _MOST:
            raise MediaError(Reason.TOO_LARGE, f"it has more than {_MOST:,} members; divide it")
        path = member_path(self.media.path, name, *place)
        full = f"{self.media.media_id}/{media_id(name)}"
        self.members.append(MediaFile(media_id=full, path=path, size=size, mtime_ns=self.media.mtime_ns))

    def _list_one_tar(self, stream: BinaryIO) -> int | None:
        """Add the members up to the end of a TAR; return the start of the next one."""
        archive, places = tarfile.open(fileobj=stream, mode="r:", tarinfo=_Header), dict[str, tuple[int, int]]()  # noqa: SIM115
        while (item := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # else all are kept
            name, target = item.name.removeprefix("./"), item.linkname.removeprefix("./")
            if item.islnk() and target in places:
                places[name] = places[target]
            elif item.isreg() and item.sparse is None:
                places[name] = item.offset_data, item.size
            elif item.isdir() or item.type in _NO_FILES:
                continue
            else:
                places[name] = NOT_INSIDE, 0
            offset, size = places[name]
            self._add(name, size, "tar", offset)
        stream.seek(archive.offset)
        if len(rest := stream.read(_BLOCK)) < _BLOCK:
            raise MediaError(Reason.TRUNCATED, "TAR: the end is missing")
        if rest.strip(b"\0"):
            raise MediaError(Reason.CORRUPT, "TAR: a header is damaged")
        rest = stream.read(_MOST_FILLING)
        filling = len(rest) - len(rest.lstrip(b"\0"))
        at = filling // _BLOCK * _BLOCK
        return archive.offset + _BLOCK + at if is_tar(rest[at : at + _BLOCK]) else None

    def _list_zip(self, stream: BinaryIO) -> None:
        try:
            _check_index(stream)
            with zipfile.ZipFile(stream) as archive:
                items = [item for item in archive.infolist() if not item.is_dir()]
        except zipfile.BadZipFile as exc:
            for local in _scan(stream):
                self._add(*local)
            raise MediaError(Reason.TRUNCATED, "ZIP: the index at its end is missing or damaged") from exc
        if sum(item.compress_size for item in items) > stream.seek(0, 2):
            raise MediaError(Reason.TOO_LARGE, "ZIP: its members state more bytes than it has")
        for item in items:
            method = ENCRYPTED if item.flag_bits & _ENCRYPTED else item.compress_type
            place = ("zip", item.header_offset, method, item.compress_size, item.CRC)
            self._add(item.filename, item.file_size, *place)


def with_members(media: Iterable[MediaFile]) -> Iterator[MediaFile]:
    """Yield each file; for an archive its members, in its order."""
    media = list(media)
    archives = (item for item in media if _is_archive_name(item.media_id))
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # requests to a bucket mostly wait
        found = pool.map(lambda item: Archive.read(item).files, archives)
        for item in media:
            yield from next(found) if _is_archive_name(item.media_id) else (item,)


class _Header(tarfile.TarInfo):
    """A header of a TAR, with its long names and further fields only below a limit."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if not (self.isreg() or self.isdir() or self.issym() or self.islnk()) and self.size > _MOST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]  # not in typeshed


def _check_index(stream: BinaryIO) -> None:
    """Check the stated size of a ZIP's index before zipfile reads the index (APPNOTE.TXT, 4.3.14 and 4.3.16)."""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - (1 << 16) - 98))
    tail = stream.read()
    for mark, at, width in ((b"PK\x05\x06", 12, 4), (b"PK\x06\x06", 40, 8)):
        place = tail.rfind(mark)
        stated = int.from_bytes(tail[place + at : place + at + width], "little") if place >= 0 else 0
        if stated == (1 << 32) - 1 and width == 4:
            continue  # the other record states it
        if stated > size:  # damage, or a comment that holds the mark
            raise zipfile.BadZipFile
        if stated > _MOST_INDEX:
            raise MediaError(Reason.TOO_LARGE, f"ZIP: its index has {stated:,} bytes; divide it")


def _scan(stream: BinaryIO) -> Iterator[tuple[Any, ...]]:
    """Yield the members of a ZIP without an index, from its start, as far as their headers state sizes."""
    at, end = 0, stream.seek(0, 2)
    while at < end:
        stream.seek(at)
        head = stream.read(_LOCAL.size)
        if len(head) < _LOCAL.size or head[:4] != b"PK\x03\x04":
            return
        _, flags, method, checksum, packed, size, length, extra = _LOCAL.unpack(head)
        name = stream.read(length).decode("utf-8" if flags & _UTF_8 else "cp437", "replace")
        if flags & _SIZES_FOLLOW or packed == (1 << 32) - 1 or at + _LOCAL.size + length + extra >= end:
            return
        if not name.endswith("/"):
            yield name, size, "zip", at, ENCRYPTED if flags & _ENCRYPTED else method, packed, checksum
        at += _LOCAL.size + length + extra + packed
