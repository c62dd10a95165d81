"""Bytes of a file, wherever it lies: one door to the local disk and to the object stores that pyarrow knows.

Whatever the operating system or the store answers instead of bytes becomes a `MediaError` with reason UNREADABLE, so
that a file that was listed and has gone is a line in the errors table.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from pipeline.errors import MediaError, Reason
from pipeline.media.names import as_uri, escape, is_url


@dataclass(frozen=True, kw_only=True, slots=True)
class Media:
    """One file of the input.

    `path` is absolute or a URL, in Python's own form (undecodable bytes as surrogates), for opening only; what is
    written to tables is `media_id`. `size` is in bytes; both it and `mtime_ns` are 0 for a file that was named but not
    found.
    """

    media_id: str
    path: str
    size: int
    mtime_ns: int
    digest: str = ""  # of what it holds, where files are told by that


def open_media(media: Media) -> BinaryIO:
    """The file, open for reading and seeking.

    Raises:
        MediaError: UNREADABLE.
    """
    with unreadable():
        return _open(media.path)


def read_bytes(media: Media, limit: int | None = None) -> bytes:
    """The whole content of a file.

    Raises:
        MediaError: UNREADABLE; TOO_LARGE when it holds more than `limit` bytes.
    """
    with unreadable(), open_media(media) as stream:
        if limit is None:
            return stream.read()
        data = stream.read(min(media.size, limit) + 1)  # asked for the limit, it would set that much memory aside
        if media.size < len(data) <= limit:  # the file has grown since it was listed
            data += stream.read(limit + 1 - len(data))
    if len(data) > limit:
        raise MediaError(Reason.TOO_LARGE, f"the file has more than {limit:,} bytes, the limit for a photo")
    return data


@contextmanager
def unreadable() -> Iterator[None]:
    """Errors of the operating system or the store inside the block, as `MediaError`."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as exc:
        raise MediaError(Reason.UNREADABLE, _said(exc)) from exc


def connect(url: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URL and the path inside it."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    place = parts.netloc.rpartition("@")[2]
    root = f"{parts.scheme}://{parts.netloc}/" + (f"?{parts.query}" if parts.query else "")
    return _file_system(root), path if parts.scheme == "file" else place + path


def url_below(root: str, path: str) -> str:
    """The URL of a path inside the file system of `root`; the inverse of `connect`."""
    parts = urlsplit(root)
    place = parts.netloc.rpartition("@")[2]
    inner = path if parts.scheme == "file" else path[len(place) :]
    return f"{parts.scheme}://{parts.netloc}{quote(inner, safe='/')}" + (f"?{parts.query}" if parts.query else "")


@lru_cache(maxsize=32)
def _file_system(root: str) -> fs.FileSystem:
    return fs.FileSystem.from_uri(as_uri(root))[0]


def _open(path: str) -> Any:
    if is_url(path):
        system, inner = connect(path)
        return system.open_input_file(inner)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a named pipe would wait for a writer for ever
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{escape(Path(path).name)!r} is not a regular file")
    return os.fdopen(handle, "rb")


def _said(exc: Exception) -> str:
    return exc.strerror if isinstance(exc, OSError) and exc.strerror else escape(str(exc))
