"""Identities of files, printable and reversible, for Arrow, reports and file systems.

A `media_id` is the file's path relative to the input root, with "/" between folders. Some characters are written as
"%XX" for each byte, as in URLs. These are "%", bytes that are not UTF-8, empty parts, and the parts "." and "..". The
same holds for the Unicode categories Cc, Cf, Zl and Zp: control characters, marks of writing direction, invisible tags,
line breaks. So `urllib.parse.unquote_to_bytes(media_id)` returns the file's own name, byte for byte.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from urllib.parse import quote, unquote, urlsplit

from framekiln.contract.store_url import StoreUrl

# Unicode categories Cc, Cf, Zl and Zp as of version 15, and lone surrogates (undecodable bytes). Listed here, since
# Python's categories grow with its version, and a media_id must not change.
_LATE = (
    "\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f"
)
_UNPRINTABLE = re.compile(
    "[\x00-\x1f%\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    + _LATE
    + "]"
)
_MAX_PART, _MAX_PATH = 200, 700  # bytes: file systems allow 255 in a name, object stores 1,024 in a key
_LONE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
_WEB = re.compile("https?://", re.I)
# Thumbnails that a Synology makes of each photo, and what people deleted on a Synology, QNAP or Windows disk.
_KEPT_BY_SYSTEMS = frozenset(("@eaDir", "#recycle", "@Recycle", "$RECYCLE.BIN"))


def is_url(path: str) -> bool:
    """Return whether a path is the URL of an object store (`s3://...`), of a web server or of a file (`file://`)."""
    return _SCHEME.match(path) is not None


def is_hidden(name: str) -> bool:
    """Return whether the name of a file or folder is hidden: `.name`, or a folder of a system's own."""
    return name.startswith(".") or name in _KEPT_BY_SYSTEMS


def is_web(path: str) -> bool:
    """Return whether a path is the URL of a web server."""
    return _WEB.match(path) is not None


def file_path(url: str) -> str | None:
    """Return the path of a `file://` URL, in which only "%XX" has a meaning; None for another URL."""
    scheme, _, rest = url.partition("://")
    path = unquote("".join(rest.partition("/")[1:]), errors="surrogateescape")
    return path if scheme.lower() == "file" else None


def as_uri(url: str) -> str:
    """Return a URL with spaces and non-ASCII letters in the form that libraries accept; "%XX" stays."""
    return _LONE_PERCENT.sub("%25", quote(url, safe="%/:?#@!$&'()*+,;=~", errors="surrogateescape"))


def media_id(relative: str) -> str:
    """Return the printable and reversible form of a path relative to the input root.

    It is never absolute or empty. A part ".." (which object stores allow in a key) is written "%2E%2E", so that the id,
    used as a path, stays inside its folder.
    """
    parts = relative.split("/")
    if any(part in ("", ".", "..") for part in parts):
        dots = (".", "..")
        return "/".join(part.replace(".", "%2E") if part in dots else escape(part) or "%2F" for part in parts)
    return escape(relative)


def as_folder(name: str) -> str:
    """Return a `media_id` as a path for file systems and object stores; overlong parts end in a hash."""
    path = "/".join(_shorten(part, _MAX_PART) for part in name.split("/"))
    return path if len(path.encode()) <= _MAX_PATH else _shorten(name.replace("/", "%2F"), _MAX_PART)


def _shorten(part: str, max_bytes: int) -> str:
    data = part.encode()
    if len(data) <= max_bytes:
        return part
    mark = hashlib.blake2b(data, digest_size=8).hexdigest()
    return f"{data[: max_bytes - 17].decode(errors='ignore')}~{mark}"


def escape(text: str) -> str:
    """Return the text with unprintable characters and "%" as "%XX" for each byte."""
    return _UNPRINTABLE.sub(lambda found: "".join(f"%{byte:02X}" for byte in os.fsencode(found.group())), text)


def relative_to_common(paths: Sequence[str]) -> list[str]:
    """Return each absolute path or URL relative to the common folder of all.

    Paths with different schemes (`/data/a.jpg` and `s3://bucket/b.jpg`) have no common folder. They stay whole, after
    their scheme (`file/data/a.jpg`, `s3/bucket/b.jpg`), and in stores of several servers after these too. Web URLs keep
    their query and "%XX".
    """
    split = [_split(path) for path in paths]
    several = len({server for _, server, _ in split} - {None}) > 1
    if several or len({scheme for scheme, _, _ in split}) > 1:
        starts = [f"{scheme}/{server}" if several and server else scheme for scheme, server, _ in split]
        return [f"{start}/{place.lstrip('/')}" for start, (_, _, place) in zip(starts, split, strict=True)]
    same = os.path.commonprefix([place for _, _, place in split])  # noqa: RUF071 - up to its last "/"
    folder = same.rfind("/") + 1
    return [place[folder:] for _, _, place in split]


def _split(path: str) -> tuple[str, str | None, str]:
    """Return the scheme, the server of a store (empty for its own one; None outside of stores), and the place there."""
    if (local := file_path(path) if is_url(path) else path) is not None:
        return "file", None, local
    if is_web(path):
        try:
            parts = urlsplit(path)
        except ValueError:  # for example "http://[a/b": no address, but still a name
            scheme, _, place = path.partition("://")
            return scheme, None, f"/{place}"
        server = parts.netloc.rpartition("@")[2]
        return parts.scheme, None, f"/{server}{parts.path}" + (f"?{parts.query}" if parts.query else "")
    store = StoreUrl.parse(path)
    return store.scheme, store.endpoint, f"/{store.inner}"
