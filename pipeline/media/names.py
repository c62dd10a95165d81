"""A file's name must survive Arrow, a report and a file system: this decides how the identity of a file is written.

A `media_id` is the file's path relative to the input root, with "/" between folders. Whatever cannot be printed
(control characters, line breaks, marks that turn the direction of writing, bytes that are no UTF-8) and "%" itself is
written as "%XX" for each of its bytes, as in URLs, so that `urllib.parse.unquote_to_bytes(media_id)` gives back the
file's own name, byte for byte.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Sequence
from urllib.parse import quote, unquote, urlsplit

# Unicode categories Cc, Cf, Zl and Zp as of version 14, and lone surrogates (undecodable bytes). Spelled out, because
# the categories that Python knows grow with its version, and a media_id must not.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f%\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
_LONGEST_PART, _LONGEST = 200, 700  # bytes: file systems take 255 of a name, object stores 1,024 of a key
_LONE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")


def is_url(path: str) -> bool:
    """Whether a path names a place in an object store (`s3://...`), or a local one by `file://`."""
    return _SCHEME.match(path) is not None


def as_uri(url: str) -> str:
    """A URL as people write it, with spaces and letters of their language, as libraries take it; "%XX" stays."""
    return _LONE_PERCENT.sub("%25", quote(url, safe="%/:?#@!$&'()*+,;=~", errors="surrogateescape"))


def media_id(relative: str) -> str:
    """The printable and reversible form of a path relative to the input root.

    Never absolute and never without a name; a part ".." (which object stores allow in a key) is written "%2E%2E", so
    that the id, used as a path, stays inside the folder it is put into.
    """
    parts = relative.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "/".join(_safe_part(part) for part in parts)
    return escape(relative)


def as_folder(name: str) -> str:
    """A `media_id` as a path that file systems and object stores take: parts that are too long end in a hash."""
    path = "/".join(_fitting(part, _LONGEST_PART) for part in name.split("/"))
    return path if len(path.encode()) <= _LONGEST else _fitting(name.replace("/", "%2F"), _LONGEST_PART)


def _fitting(part: str, most: int) -> str:
    data = part.encode()
    if len(data) <= most:
        return part
    mark = hashlib.blake2b(data, digest_size=8).hexdigest()
    return f"{data[: most - 17].decode(errors='ignore')}~{mark}"


def escape(text: str) -> str:
    """`text` with everything unprintable, and "%", as "%XX" for each byte."""
    return _UNPRINTABLE.sub(_percent, text)


def relative_to_common(paths: Sequence[str]) -> list[str]:
    """Each absolute path or URL relative to the folder that all of them share.

    Paths of several kinds (`/data/a.jpg` and `s3://bucket/b.jpg`) share no folder: they are taken as written, led by
    their scheme (`file/data/a.jpg`, `s3/bucket/b.jpg`).
    """
    split = [_split(path) for path in paths]
    if len({scheme for scheme, _ in split}) > 1:
        return [f"{scheme}/{place.lstrip('/')}" for scheme, place in split]
    folder = posixpath.commonpath([posixpath.dirname(place) for _, place in split]) if split else ""
    return [place[len(folder) :].lstrip("/") for _, place in split]


def _split(path: str) -> tuple[str, str]:
    if not is_url(path):
        return "file", path
    parts = urlsplit(path)
    bucket = f"/{parts.netloc}" if parts.netloc else ""
    return parts.scheme, bucket + unquote(parts.path, errors="surrogateescape")


def _safe_part(part: str) -> str:
    return part.replace(".", "%2E") if part in (".", "..") else escape(part) or "%2F"


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(match.group()))
