"""Access to files on the local disk and in the object stores that pyarrow supports.

Errors of the operating system or the store become a `MediaError` (`access`). So a file removed after the listing is a
row in the errors table.
"""

# Names stay strings as the system gave them, and pathlib would not keep them so.
# ruff: noqa: PTH100, PTH111, PTH116
import io
import os
import re
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO
from urllib.parse import quote

from pyarrow import fs

from framekiln.contract.errors import MediaError, Reason
from framekiln.contract.store_url import StoreUrl
from framekiln.media.access import access_errors
from framekiln.media.block_cache import CachedStream
from framekiln.media.media_ids import as_uri, file_path, is_url, is_web
from framekiln.media.members import open_member, split_member
from framekiln.media.network import Network, network

_GCS = ("gs://", "gcs://")
_BUCKET = re.compile(r"[A-Za-z0-9._:-]*")
_LOST = {"tls_verify_certificates", "smart_defaults"}  # parameters of a bucket's URI that Arrow does not pickle
_AZURE = ("abfs://", "abfss://", "az://", "azure://", "wasb://", "wasbs://")
"""Arrow reads the first two, but without a login its client ends the process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MediaFile:
    """One file of the input.

    `path` is absolute or a URL, in Python's form (undecodable bytes as surrogates), only for opening. An archive
    member's path also has its place (`members`). Tables have the `media_id`. `size` is in bytes; it and `mtime_ns` are
    0 for a listed file that does not exist.
    """

    media_id: str
    path: str
    size: int
    mtime_ns: int
    digest: str = ""  # digest of its content, if files are compared by content
    sidecar: "MediaFile | None" = None  # the XMP file beside it; see `sidecars`


def open_media(media: MediaFile) -> BinaryIO:
    """Open a file for reading and seeking. Raises MediaError: see `access_errors`, and for a member `open_member`."""
    archive, place, _ = split_member(media.path)
    with access_errors(), ExitStack() as opened:
        stream: BinaryIO = opened.enter_context(_open(archive, media.mtime_ns))
        result = open_member(stream, place, media.size) if place else stream
        opened.pop_all()
        return result


def status_of(media: MediaFile) -> tuple[int, int]:
    """Return a local file's present size and time, for comparison; for a member, the archive's time.

    Raises OSError, ValueError: it does not exist any more.
    """
    archive, place, _ = split_member(media.path)
    status = os.stat(archive)
    return media.size if place else status.st_size, as_int64(status.st_mtime_ns)


def shown_path(path: str) -> str:
    """Return a path or URL for people, without credentials; a member's as `shard.tar/member`."""
    archive, place, name = split_member(path)
    shown = _remove_user(archive) if is_url(archive) else archive
    return f"{shown}/{name}" if place else shown


def open_local(path: str) -> BinaryIO:
    """Open a file of the local disk, without waiting for the data of a pipe or a device.

    Raises OSError: it cannot be opened, or is no regular file.
    """
    _check_regular(os.stat(path).st_mode)  # opening a device may act on it
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # opening a named pipe would wait for a writer
    try:
        _check_regular(os.fstat(handle).st_mode)
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def read_bytes(media: MediaFile, limit: int | None = None) -> bytes:
    """Return the whole content of a file.

    Raises MediaError: UNREADABLE, UNREACHABLE; TOO_LARGE if it has more than `limit` bytes.
    """
    with access_errors(), open_media(media) as stream:
        return read_stream(stream, limit)


def read_whole(media: MediaFile) -> BinaryIO:
    """Return the content of a file elsewhere, in memory, or if large in a temporary file.

    Raises MediaError: UNREADABLE; for a web server see `web.download`.
    """
    if is_web(media.path):
        from framekiln.media.web import download

        return download(media.path)
    return io.BytesIO(read_bytes(media))


def read_stream(stream: BinaryIO, limit: int | None) -> bytes:
    """Return the content of an open file. Raises MediaError: TOO_LARGE if it has more than `limit` bytes."""
    size = stream.seek(0, os.SEEK_END)  # it may have changed since the listing
    stream.seek(0)
    if limit is not None and size > limit:
        raise MediaError(Reason.TOO_LARGE, f"the file has more than {limit:,} bytes, the limit for a photo")
    return stream.read(size)


def local_path(source: str) -> str | None:
    """Return the absolute path of a path or a `file://` URL; None for another URL."""
    if not is_url(source):
        return os.path.abspath(os.path.expanduser(source))
    path = file_path(source)
    return None if path is None else os.path.normpath(path)


def uri_of(path: str) -> str:
    """Return the URI of an absolute path or URL, without credentials; a store's has its key as it is, others are ASCII.

    A member's is fsspec's chain, `tar://member::file:///data/shard.tar`.
    """
    archive, place, name = split_member(path)
    if place:
        return f"{place[0]}://{quote(os.fsencode(name))}::{uri_of(archive)}"
    if (local := local_path(path) if is_url(path) else path) is not None:
        return "file://" + quote(os.fsencode(local))
    if is_web(path):
        return quote(as_uri(_remove_user(path)), safe="%/:?#[]@!$&'()*+,;=~")
    return os.fsencode(_remove_user(path)).decode(errors="backslashreplace")


def _remove_user(url: str) -> str:
    scheme, _, rest = url.partition("://")
    server, slash, inner = rest.partition("/")
    return f"{scheme}://{server.rpartition('@')[2]}{slash}{inner}"


def printable_path(path: str) -> str | None:
    """Return the path of a local file; None for a store or an archive, and for a name that is not UTF-8."""
    with suppress(UnicodeEncodeError):
        place = None if split_member(path)[1] else local_path(path) if is_url(path) else path
        return place and place.encode().decode()
    return None


def as_int64(number: int) -> int:
    """Return a number modulo 2**64, so that times after the year 2262 in nanoseconds remain distinguishable."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def connect(url: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URL and the path inside it."""
    store = StoreUrl.parse(url)
    return _open_file_system(store.root, network()), store.inner


@lru_cache(maxsize=32)
def _open_file_system(root: str, _rules: Network) -> fs.FileSystem:
    return open_url(root)[0]


def open_url(url: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URL, and the path inside it.

    Raises ValueError: Arrow cannot open it. Raises OSError: the file system refuses.
    """
    if (path := file_path(url) if is_url(url) else url) is not None:
        system, path = fs.FileSystem.from_uri(path)
        return system, path
    store = StoreUrl.parse(url)
    if not _BUCKET.fullmatch(store.bucket):
        raise ValueError(f"{store.bucket!r} is no name of a bucket")
    uri = as_uri(store.root)
    if uri.lower().startswith(_AZURE):
        raise ValueError("Azure is not supported: copy the files to a disk, S3 or GCS")
    rules = network()
    if uri.lower().startswith(_GCS) and "retry_limit_seconds" not in uri:
        seconds = max(1, round(rules.patience_s))  # Arrow's own 15 minutes look like a hang
        uri += f"{'&' if '?' in uri else '?'}retry_limit_seconds={seconds}"
    system, _ = fs.FileSystem.from_uri(uri)
    own = isinstance(system, fs.S3FileSystem) and not any(f"{name}=" in store.query for name in _LOST)
    return _set_limits(system, rules) if own else system, store.inner.rstrip("/")


def _set_limits(system: fs.S3FileSystem, rules: Network) -> fs.S3FileSystem:
    """Return a bucket's file system with our timeout and retries, for which Arrow's URIs have no names.

    Its pickled form has everything else that the URI and environment define, such as `AWS_ENDPOINT_URL`.
    """
    limits = {
        "connect_timeout": rules.timeout_s,
        "request_timeout": rules.timeout_s,
        "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=rules.retries + 1),
        "allow_delayed_open": True,  # a small object is one request
    }
    settled: dict[str, Any] = system.__reduce__()[1][0]
    return fs.S3FileSystem(**settled | limits | {"region": system.region})


def _open(path: str, mtime_ns: int) -> Any:
    if is_url(path):
        if (place := local_path(path)) is not None:
            return open_local(place)
        if is_web(path):
            from framekiln.media.web import open_web  # loads urllib3, which most runs do not need

            return open_web(path)
        system, inner = connect(path)
        if "//" in inner:
            raise ValueError("its key has an empty part (//), which Arrow does not read; copy it to another key")
        file = system.open_input_file(inner)
        return CachedStream(file, file.size(), (path, mtime_ns))
    return open_local(path)


def _check_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        kinds = {"d": "folder", "p": "named pipe", "s": "socket", "b": "block device", "c": "character device"}
        raise OSError(f"it is a {kinds.get(stat.filemode(mode)[0], 'special file')}, not a regular file")
