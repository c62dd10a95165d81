"""Access to files on the local disk and in the object stores that pyarrow supports.

Errors of the operating system or the store become a `MediaError` with reason UNREADABLE, so that a file that was
removed after the listing is a line in the errors table.
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

from pipeline.contract.errors import MediaError, Reason
from pipeline.media.discovery.media_ids import as_uri, escape, is_url


@dataclass(frozen=True, kw_only=True, slots=True)
class MediaFile:
    """One file of the input.

    `path` is absolute or a URL, in Python's own form (undecodable bytes as surrogates), for opening only. Tables have
    the `media_id`. `size` is in bytes; it and `mtime_ns` are 0 for a listed file that does not exist.
    """

    media_id: str
    path: str
    size: int
    mtime_ns: int
    digest: str = ""  # of its content, if files are compared by content


def open_media(media: MediaFile) -> BinaryIO:
    """Open a file for reading and seeking.

    Raises:
        MediaError: UNREADABLE.
    """
    with access_errors():
        return _open(media.path)


def read_bytes(media: MediaFile, limit: int | None = None) -> bytes:
    """Return the whole content of a file.

    Raises:
        MediaError: UNREADABLE; TOO_LARGE if it has more than `limit` bytes.
    """
    with access_errors(), open_media(media) as stream:
        if limit is None:
            return stream.read()
        data = stream.read(min(media.size, limit) + 1)  # a read of `limit` would allocate that much
        if media.size < len(data) <= limit:  # the file has grown since it was listed
            data += stream.read(limit + 1 - len(data))
    if len(data) > limit:
        raise MediaError(Reason.TOO_LARGE, f"the file has more than {limit:,} bytes, the limit for a photo")
    return data


@contextmanager
def access_errors() -> Iterator[None]:
    """Raise `MediaError` for errors of the operating system or the store inside the block."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as exc:
        raise MediaError(Reason.UNREADABLE, _error_text(exc)) from exc


def connect(url: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URL and the path inside it."""
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}/" + (f"?{parts.query}" if parts.query else "")
    return _file_system(root), inner_path(url)


def inner_path(url: str) -> str:
    """Return the path of a URL inside its file system."""
    parts = urlsplit(url)
    place = "" if parts.scheme == "file" else parts.netloc.rpartition("@")[2]
    return place + unquote(parts.path)


def url_of(root: str, path: str) -> str:
    """Return the URL of a path inside the file system of `root`, the inverse of `connect`."""
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
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # opening a named pipe would wait for a writer
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{escape(Path(path).name)!r} is not a regular file")
    return os.fdopen(handle, "rb")


def _error_text(exc: Exception) -> str:
    return exc.strerror if isinstance(exc, OSError) and exc.strerror else escape(str(exc))
