"""A file server for tests of downloads: with or without byte ranges, with interrupted connections and wrong content."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """The files, behaviour and received requests of the server."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)  # bytes after which the next responses with a body are interrupted
    busy: int = 0  # number of first requests that get status 503
    requests: list[tuple[str, int]] = field(default_factory=list)  # path, first byte
    url: str = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def site(self) -> Site:
        return self.server.site

    def do_GET(self):
        ranged = self.headers.get("Range") if self.site.ranges else None
        start = int(ranged.removeprefix("bytes=").rstrip("-")) if ranged else 0
        self.site.requests.append((self.path, start))
        if self.site.busy:
            self.site.busy -= 1
            return self.respond(503, b"")
        if self.path not in self.site.files:
            return self.respond(404, b"no such file")
        content = self.site.files[self.path]
        span = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if ranged else {}
        return self.respond(206 if ranged else 200, content[start:], **span)

    def respond(self, status, body, **headers):
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        cut = self.site.cuts.pop(0) if self.site.cuts and status < 400 else None
        self.wfile.write(body[:cut])
        self.close_connection = cut is not None

    def log_message(self, *_):
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Pass over clients that hang up: a traceback here would be read as an error of the command under test."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving():
    """Yield a site on 127.0.0.1, served until the end of the block."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.site = Site(url=f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
