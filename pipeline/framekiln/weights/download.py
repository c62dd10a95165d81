"""Resumable HTTP downloads, accepted only if their sha256 matches the lockfile.

Built on requests and the retries of its urllib3. pooch, a dependency too, restarts after each interrupted connection,
and huggingface_hub resumes from its own hub only.
"""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from framekiln.contract.errors import WeightsError
from framekiln.weights.checksums import digest_of
from framekiln.weights.lockfile import WeightsEntry

ProgressCallback = Callable[[str, int, int], None]
"""Called with the name of an entry, the bytes downloaded so far, and the bytes in total."""

_CHUNK = 1 << 16  # bytes; at most these are lost when a response is interrupted
_TIMEOUT = (10.0, 60.0)  # s to connect, and between two bytes: a slower connection counts as dead
_RETRY = Retry(  # waits 0, 1 and 2 s: single failures are common, and an unreachable host stays unreachable
    total=3, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504), raise_on_status=False
)
_MAX_EMPTY = 3  # consecutive responses that are interrupted before their first byte


class UnreachableError(WeightsError):
    """A source that does not respond."""


def download(entry: WeightsEntry, url: str, part: Path, on_progress: ProgressCallback) -> None:
    """Download a file to `part`, which may hold its beginning, and check its hash.

    An interrupted connection is resumed as long as attempts bring new bytes. A file with the wrong hash is removed. If
    it was downloaded in pieces, it is first downloaded once more as a whole.
    Raises WeightsError: the source lacks the file or sent other content, or the cache is not writable;
    UnreachableError: the source does not respond.
    """
    for _ in range(2 if _get_size(part) else 1):
        _complete(entry, url, part, on_progress)
        digest = digest_of(part)
        if digest == entry.sha256:
            return
        part.unlink()
    raise _make_mismatch(f"{_get_host(url)} sent another file (sha256 {digest}, the lockfile has {entry.sha256})")


def _complete(entry: WeightsEntry, url: str, part: Path, on_progress: ProgressCallback) -> None:
    """Request the rest of a file until it is complete, as long as responses bring new bytes."""
    empty = 0
    with requests.Session() as session:
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(max_retries=_RETRY))
        while (before := _get_size(part)) < entry.bytes:
            try:
                _receive(session, entry, url, part, on_progress)
            except (requests.exceptions.ChunkedEncodingError, requests.ConnectionError, requests.Timeout) as error:
                empty = 0 if _get_size(part) > before else empty + 1
                is_cut = isinstance(error, requests.exceptions.ChunkedEncodingError)
                if empty >= (_MAX_EMPTY if is_cut else 1):
                    what = "interrupts its responses" if is_cut else "cannot be reached"
                    raise UnreachableError(f"{_get_host(url)} {what}", code="FK-SOURCE-UNREACHABLE") from error
            except requests.RequestException as error:
                message = f"{url} cannot be downloaded ({type(error).__name__})"
                raise WeightsError(message, code="FK-DOWNLOAD-FAILED") from error
            except OSError as error:
                message = f"{part.parent} is not writable ({error.strerror})"
                raise WeightsError(message, code="FK-CACHE-NOT-WRITABLE") from error
    if before > entry.bytes:
        part.unlink()
        raise _make_mismatch(f"{_get_host(url)} sent more than the {entry.bytes} bytes in the lockfile")


def _receive(
    session: requests.Session, entry: WeightsEntry, url: str, part: Path, on_progress: ProgressCallback
) -> None:
    start = _get_size(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with session.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        if response.status_code not in (200, 206):
            status = f"{response.status_code} {response.reason}"
            message = f"{_get_host(url)} returned {status} for {urlsplit(url).path}"
            raise WeightsError(message, code="FK-DOWNLOAD-FAILED")
        ranged = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        start = start if response.status_code == 206 and ranged else 0  # without ranges the whole file comes again
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and start + int(length) != entry.bytes:  # a login page must not overwrite the part
            raise _make_mismatch(f"{_get_host(url)} offers {start + int(length)} bytes, the lockfile has {entry.bytes}")
        with part.open("ab" if start else "wb") as file:
            for chunk in response.iter_content(_CHUNK):
                file.write(chunk)
                start += len(chunk)
                on_progress(entry.name, start, entry.bytes)
                if start > entry.bytes:
                    return
    if start < entry.bytes:
        raise requests.exceptions.ChunkedEncodingError("the response ended early")


def _make_mismatch(message: str) -> WeightsError:
    return WeightsError(message, code="FK-DOWNLOAD-MISMATCH")


def _get_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _get_host(url: str) -> str:
    return urlsplit(url).hostname or url
