"""Files of web servers, with img2dataset's manners: owners' wishes, few retries, no access to private networks.

Each connection is checked by the address that a name has at that time. So neither a redirect nor a name server leads to
another machine of this network.
"""

import re
import socket
import tempfile
import time
from contextlib import closing, suppress
from functools import cache, lru_cache
from http.client import HTTPException, HTTPResponse
from io import BufferedReader, RawIOBase
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import IO, Any, BinaryIO, cast

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool, PoolManager, Retry
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import DecodeError, HTTPError, InvalidHeader, MaxRetryError, ProtocolError, ReadTimeoutError
from urllib3.exceptions import TimeoutError as NoAnswerError

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.media_ids import escape, is_url, is_web
from framekiln.media.network import LEAST_RATE, network

_REDIRECTS = 5  # img2dataset and browsers follow more; files in lists need one or two
_BACKOFF_S, _LONGEST_WAIT_S = 0.5, 20.0  # s before a retry: 0, 1, 2, 4; at most, whatever the server requests
_BUSY = (429, 500, 502, 503, 504)
_PASSING = (NoAnswerError, ProtocolError, TimeoutError, ConnectionError)  # errors that may be gone later
_PIECE, _IN_MEMORY = 1 << 16, 16 << 20  # bytes of one read, and of a file before it goes into a temporary one
_REFUSALS = {"noai", "noimageai", "noindex", "noimageindex"}  # refusals as in img2dataset
_WITH_VALUE = ("max-", "unavailable_after")  # directives that look like a robot's name
_DIRECTIVE = re.compile(r"\s*(?:([\w .*/-]+):)?\s*([\w-]+)")
_NAT64, _AZURE_HOST = ip_network("64:ff9b::/96"), ip_address("168.63.129.16")  # both lead to private services
_LOCAL = (ip_network("64:ff9b:1::/48"), ip_network("::/96"))  # local NAT64 (RFC 8215); IPv4 inside IPv6, deprecated


def download(url: str) -> BinaryIO:
    """Return the whole file at an `http://` or `https://` URL, in memory or in a temporary file.

    Raises MediaError: REFUSED (by its owner, or its address is private), TOO_LARGE, UNREACHABLE (it may pass), or
    UNREADABLE.
    """
    try:
        return _download(url)
    except (HTTPError, HTTPException, OSError, ValueError) as exc:
        cause = (exc.reason if isinstance(exc, MaxRetryError) else None) or exc
        text = re.sub(r"^\S*\(host=.*?\): ", "", _describe(cause)).rstrip(".") or type(cause).__name__
        hint = " (network.timeout_s)" if "timed out" in text else ""
        reason = Reason.UNREACHABLE if isinstance(cause, _PASSING) else Reason.UNREADABLE
        raise MediaError(reason, escape(text) + hint) from exc


def _describe(cause: Exception) -> str:
    """Return the text of an error; a broken connection has a text and a cause, which may be equal."""
    parts = cause.args if isinstance(cause, (ProtocolError, DecodeError)) else [cause]
    texts = [str(part).rstrip(".") for part in parts]
    return texts[0] if texts[-1] in texts[0] else ": ".join(texts)


def open_web(url: str) -> BinaryIO:
    """Open a whole file; the last one is cached, since a video is opened for its type, frames and sound."""
    return open(f"/dev/fd/{_keep(url).fileno()}", "rb")  # noqa: PTH123 - with a place of its own in the file


@lru_cache(maxsize=1)
def _keep(url: str) -> IO[bytes]:
    file = cast("tempfile.SpooledTemporaryFile[bytes]", download(url))
    file.rollover()
    return file


def is_public(address: str) -> bool:
    """Return whether an IP address is public, even inside one of IPv6."""
    place: IPv4Address | IPv6Address = ip_address(address)
    if isinstance(place, IPv6Address):
        inner = IPv4Address(int(place) & 0xFFFFFFFF) if place in _NAT64 else place.ipv4_mapped or place.sixtofour
        if place.is_site_local or any(place in each for each in _LOCAL):
            return False
        place = inner or place
    return place.is_global and not place.is_multicast and place != _AZURE_HOST


def _download(url: str) -> BinaryIO:
    rules = network()
    retries: Retry = _Retries(
        total=None,
        connect=min(1, rules.retries),  # old lists are full of dead hosts
        read=rules.retries,
        status=rules.retries,
        other=0,
        redirect=_REDIRECTS,
        status_forcelist=_BUSY,
        backoff_factor=_BACKOFF_S,
        backoff_max=_LONGEST_WAIT_S,
        raise_on_status=False,
    )
    headers = {"User-Agent": rules.user_agent, "Accept-Encoding": "identity"}
    while True:
        response = _get_pool().request(
            "GET", url, headers=headers, preload_content=False, retries=retries, timeout=rules.timeout_s
        )
        try:
            with closing(response):
                _check_answer(response)
                return _receive(response, rules.max_bytes)
        except (ProtocolError, ReadTimeoutError) as exc:  # the answer was cut, or stalls
            retries = retries.increment("GET", url, error=exc)
            retries.sleep()


class _Retries(Retry):
    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        """Return the seconds that a server requests, up to our own limit."""
        seconds = None
        with suppress(InvalidHeader):  # for example "soon": our own waits apply
            seconds = super().get_retry_after(response)
        return None if seconds is None else min(seconds, _LONGEST_WAIT_S)


def _check_answer(response: BaseHTTPResponse) -> None:
    if response.status != 200:
        may_pass = response.status >= 500 or response.status in (408, 429)
        reason = Reason.UNREACHABLE if may_pass else Reason.UNREADABLE
        raise MediaError(reason, f"HTTP {response.status} {escape(response.reason or '')}".rstrip())
    if network().robots_tag and (wish := _find_refusal(response.headers.getlist("X-Robots-Tag"))):
        raise MediaError(Reason.REFUSED, f"its owner does not allow this use (X-Robots-Tag: {wish})")


def _find_refusal(tags: list[str]) -> str | None:
    """Return the first rejecting directive for all robots, or for ours; a name counts up to the next one."""
    own = re.split(r"[/ ]", network().user_agent.lower())[0]
    for tag in tags:
        robot = "*"
        for part in tag.lower().split(","):
            if match := _DIRECTIVE.match(part):
                if (match[1] or "").startswith(_WITH_VALUE):
                    continue
                robot = (match[1] or robot).strip()
                if match[2] in _REFUSALS and robot in ("*", own):
                    return match[2]
    return None


def _receive(response: BaseHTTPResponse, most: int) -> BinaryIO:
    if (response.length_remaining or 0) > most:
        raise _make_too_large(most)
    size = 0
    result: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - the caller closes it
    while piece := response.read1(_PIECE):
        size += len(piece)
        if size > most:
            raise _make_too_large(most)
        result.write(piece)
    content = getattr(getattr(response, "_decoder", None), "_obj", None)  # of a gzip or deflate answer
    if not getattr(content, "eof", True):
        raise ProtocolError(f"the end of the compressed content is missing after {size:,} bytes")
    result.seek(0)
    return cast("BinaryIO", result)


def _make_too_large(most: int) -> MediaError:
    return MediaError(Reason.TOO_LARGE, f"the file has more than {most:,} bytes (network.max_bytes)")


class _Paced(RawIOBase):
    """The bytes of an answer. A server that sends a byte now and then keeps no timeout of a socket from waiting on."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._begin, self._size, self.has_head = stream, time.monotonic(), 0, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed's protocol of buffers
        count: int = self._stream.readinto(buffer)
        self._size += count
        seconds = time.monotonic() - self._begin
        if seconds > network().timeout_s and not (self.has_head and self._size >= seconds * LEAST_RATE):
            raise MediaError(
                Reason.UNREACHABLE, f"the server sent {self._size:,} bytes in {seconds:.0f} s (network.timeout_s)"
            )
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


class _PacedResponse(HTTPResponse):
    def __init__(self, sock: socket.socket, *values: Any, **more: Any) -> None:
        super().__init__(sock, *values, **more)
        self._paced = _Paced(self.fp.detach())
        self.fp = BufferedReader(self._paced)

    def begin(self) -> None:
        super().begin()
        self._paced.has_head = True


class _PublicOnly(HTTPConnection):
    """A connection to an allowed address; its name is looked up once, and that answer is used."""

    response_class = _PacedResponse

    def getresponse(self) -> Any:
        """Return an answer; the content of a redirect or a refusal is not read, which may have any length."""
        response = super().getresponse()
        response.drain_conn = response.close  # type: ignore[method-assign]
        place = response.get_redirect_location() or ""
        if is_url(place) and not is_web(place):
            raise MediaError(Reason.UNREADABLE, f"it redirects to {escape(place)!r}, which is on no web server")
        return response

    def _new_conn(self) -> socket.socket:
        name = self._dns_host
        try:
            for number, address in enumerate(addresses := _look_up(name, self.port or self.default_port)):
                self._dns_host = address
                try:
                    return super()._new_conn()
                except HTTPError:
                    if number + 1 == len(addresses):
                        raise
        finally:
            self._dns_host = name
        raise MediaError(Reason.UNREADABLE, f"no address of {escape(name)} answers")


class _PublicOnlyTLS(_PublicOnly, HTTPSConnection):
    pass


def _look_up(name: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises MediaError: UNREACHABLE, UNREADABLE, REFUSED."""
    try:
        answers = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        if isinstance(exc, socket.gaierror) and exc.errno == socket.EAI_AGAIN:
            raise MediaError(Reason.UNREACHABLE, f"no name server answers for {escape(name)}") from exc
        raise MediaError(Reason.UNREADABLE, f"there is no host {escape(name)}") from exc
    found = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
    if allowed := found if network().private_addresses else [address for address in found if is_public(address)]:
        return allowed
    what = f"{escape(name)} is at {found[0]}, no address of the public Internet (network.private_addresses allows it)"
    raise MediaError(Reason.REFUSED, what)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _PublicOnly


class _PoolTLS(HTTPSConnectionPool):
    ConnectionCls = _PublicOnlyTLS


@cache
def _get_pool() -> PoolManager:
    pool = PoolManager(num_pools=64, maxsize=32)  # hosts, and connections to one: as many as files are read ahead
    pool.pool_classes_by_scheme = {"http": _Pool, "https": _PoolTLS}
    return pool
