"""A file may be a list of files: this tells one from media by its content, and reads it."""

from __future__ import annotations

# Names stay strings as the system gave them, and pathlib would not keep them so.
# ruff: noqa: PTH110, PTH118, PTH120
import os
import posixpath
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from pipeline.errors import InputError, did_you_mean
from pipeline.media.names import escape, is_url
from pipeline.media.sniff import is_text

_HEAD = 1 << 16  # bytes looked at to tell text from media
_BLOCK = 1 << 20  # bytes of one read
_LONGEST = 1 << 16  # bytes of a line: Linux takes paths of 4,096, object stores keys of 1,024
_MOST = 10_000_000  # entries: 9 GB of memory in the driver; more are several runs
_TRIED = 1000  # lines of which one must name a file: a list whose first thousand have all gone is more likely no list


def read_list(stream: Any, source: str) -> list[str] | None:
    """The paths in a list (absolute, or URLs), without repetitions and in its order; None when the file is no list.

    Args:
        stream: the file, open for reading bytes and seeking.
        source: its path or URL, against whose folder relative entries are resolved.

    Raises:
        InputError: the file is empty, or it is a list without entries or without the column `path`; it has more than
            ten million entries, or one that is longer than any path.
    """
    head = stream.read(_HEAD)
    if not head:
        raise InputError(f"{escape(source)!r} is empty (0 bytes): choose another input.")
    stream.seek(0)
    if head[:4] == b"PAR1":
        entries = _parquet(stream, source)
    elif is_text(head):
        entries = (os.fsdecode(line) for line in _lines(stream, source))
    else:
        return None
    found: dict[str, None] = {}
    for entry in entries:
        if entry.strip():
            found[_resolve(entry.rstrip("\r"), source)] = None
        if len(found) > _MOST:
            raise InputError(f"The list {escape(source)!r} has more than {_MOST:,} entries: give it in parts.")
    places = list(found)
    if not places:
        raise InputError(f"The list {escape(source)!r} has no entries: write one path on each line.")
    if head[:4] != b"PAR1" and not any(is_url(place) or os.path.exists(place) for place in places[:_TRIED]):
        raise InputError(
            f"{escape(source)!r} is text, neither a photo nor a video, and no line of it names an existing file: "
            f"relative paths are resolved against {escape(posixpath.dirname(source))!r}."
        )
    return places


def _lines(stream: Any, source: str) -> Iterator[bytes]:
    """Lines, without ever holding a long one."""
    rest = stream.read(3).removeprefix(b"\xef\xbb\xbf")
    while block := stream.read(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        yield from (_short(line, source) for line in lines)
        _short(rest, source)
    yield rest


def _short(entry: bytes, source: str) -> bytes:
    if len(entry) > _LONGEST:
        raise InputError(f"An entry of the list {escape(source)!r} is longer than any path: is it a list of files?")
    return entry


def _parquet(stream: Any, source: str) -> Iterator[str]:
    table = pq.ParquetFile(stream)
    if "path" not in table.schema_arrow.names:
        known = table.schema_arrow.names
        raise InputError(f"The list {escape(source)!r} has no column 'path'.{did_you_mean('path', known)}")
    if table.metadata.num_rows > _MOST:
        raise InputError(f"The list {escape(source)!r} has more than {_MOST:,} rows: give it in parts.")
    for batch in table.iter_batches(columns=["path"]):
        for value in batch["path"].to_pylist():
            if value is not None:
                yield os.fsdecode(_short(os.fsencode(value), source))


def _resolve(entry: str, source: str) -> str:
    if is_url(entry):
        return entry
    if is_url(source):
        return f"{posixpath.dirname(source)}/{entry}"
    return os.path.normpath(os.path.join(os.path.dirname(source), entry))
