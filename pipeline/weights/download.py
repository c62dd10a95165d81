"""A download of gigabytes breaks off sooner or later, so it goes on where it stopped and is believed only by its hash.

Over requests and the retries of its urllib3: pooch, which is at hand too, starts anew after each cut, and
huggingface_hub resumes from its own hub only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from pipeline.errors import WeightsError
from pipeline.weights.lock import Entry

Watch = Callable[[str, int, int], None]
"""Told the name of an entry, how many bytes of it are there, and how many there will be."""

_CHUNK = 1 << 16  # bytes; what is lost of an answer that is cut
_TIMEOUT = (10.0, 60.0)  # seconds to connect, and between two bytes: slower than that is a dead connection
_RETRY = Retry(  # waits of 0, 1 and 2 s: one answer that went wrong is common, a host that is away stays away
    total=3, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504), raise_on_status=False
)
_BARREN = 3  # answers in a row that are cut before they bring anything


class UnreachableError(WeightsError):
    """No answer from where the file is to come from."""


def download(entry: Entry, url: str, part: Path, watch: Watch) -> None:
    """Bring a file to `part`, which may hold its beginning, and check its hash.

    A cut connection is taken up again for as long as attempts bring something. A file with the wrong hash is
    removed; where it was put together from pieces, it is first fetched once more as a whole.

    Raises:
        WeightsError: there is no such file, it is another one than the lockfile says, or it cannot be written.
        UnreachableError: nobody answers.
    """
    pieced = _size(part) > 0
    _complete(entry, url, part, watch)
    digest = _digest(part)
    if digest != entry.sha256 and pieced:
        part.unlink()
        _complete(entry, url, part, watch)
        digest = _digest(part)
    if digest != entry.sha256:
        part.unlink()
        raise WeightsError(
            f"{_host(url)} sent another file (sha256 {digest}, the lockfile says {entry.sha256}), which was removed"
        )


def _complete(entry: Entry, url: str, part: Path, watch: Watch) -> None:
    barren = 0
    with requests.Session() as session:
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(max_retries=_RETRY))
        while (before := _size(part)) < entry.bytes:
            cut = _attempt(session, entry, url, part, watch)
            barren = 0 if _size(part) > before else barren + 1
            if cut is not None and barren >= _BARREN:
                raise UnreachableError(f"{_host(url)} cuts its answers off") from cut
    if before > entry.bytes:
        part.unlink()
        raise WeightsError(f"{_host(url)} sent more than the {entry.bytes} bytes that the lockfile says")


def _attempt(session: requests.Session, entry: Entry, url: str, part: Path, watch: Watch) -> Exception | None:
    """One request; what cut its answer off, or None."""
    before = _size(part)
    try:
        _receive(session, entry, url, part, watch)
    except requests.exceptions.ChunkedEncodingError as error:
        return error
    except (requests.ConnectionError, requests.Timeout) as error:
        if _size(part) > before:
            return error
        raise UnreachableError(f"{_host(url)} cannot be reached") from error
    except requests.RequestException as error:
        raise WeightsError(f"{url} cannot be fetched ({type(error).__name__})") from error
    except OSError as error:
        raise WeightsError(f"{part.parent} cannot be written ({error.strerror})") from error
    return None


def _receive(session: requests.Session, entry: Entry, url: str, part: Path, watch: Watch) -> None:
    """One request for what is missing, added to what is there."""
    start = _size(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with session.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as answer:
        if answer.status_code not in (200, 206):
            raise WeightsError(f"{_host(url)} answers {answer.status_code} {answer.reason} for {urlsplit(url).path}")
        start = start if _continues(answer, start) else 0  # a server without ranges sends all of it again
        _refuse_other_size(answer, start, entry, url)
        with part.open("ab" if start else "wb") as file:
            for chunk in answer.iter_content(_CHUNK):
                file.write(chunk)
                start += len(chunk)
                watch(entry.name, start, entry.bytes)
                if start > entry.bytes:
                    return
    if start < entry.bytes:
        raise requests.exceptions.ChunkedEncodingError("the answer ended early")


def _continues(answer: requests.Response, start: int) -> bool:
    return answer.status_code == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _refuse_other_size(answer: requests.Response, start: int, entry: Entry, url: str) -> None:
    """A page that asks to log in is told from the file before it takes its place."""
    length = answer.headers.get("Content-Length", "")
    if length.isdecimal() and start + int(length) != entry.bytes:
        size = start + int(length)
        raise WeightsError(f"{_host(url)} offers {size} bytes, and the lockfile says {entry.bytes}")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _host(url: str) -> str:
    return urlsplit(url).hostname or url
