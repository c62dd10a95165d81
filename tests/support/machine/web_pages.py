"""A web server for tests that answers each path in turn, with any status, headers and length."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Pages:
    """What a server answers by path, in turn: status, headers and body; the last answer stays."""

    answers: dict[str, list[tuple[int, dict[str, str], bytes]]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    stall: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def add(self, path, body=b"body", status=200, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.setdefault(path, []).append((status, named, body))
        return f"{self.url}{path}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        pages = self.server.pages
        pages.requests.append(self.path)
        left = pages.answers.get(self.path, [(404, {}, b"")])
        status, headers, body = left.pop(0) if len(left) > 1 else left[0]
        self.send_response(status)
        if "Transfer-Encoding" in headers:
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        for name, value in (
            {} if "Transfer-Encoding" in headers else {"Content-Length": str(len(body))} | headers
        ).items():
            self.send_header(name, value)
        if "Transfer-Encoding" in headers:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        if int(headers.get("Content-Length", len(body))) > len(body):
            if "Stall" in headers:
                pages.stall.wait(20)
            self.close_connection = True

    def log_message(self, *_):
        pass


@contextmanager
def serving(address="127.0.0.1"):
    server = ThreadingHTTPServer((address, 0), _Handler)
    server.daemon_threads = True
    server.pages = Pages(url=f"http://{address}:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.pages
    finally:
        server.pages.stall.set()
        server.shutdown()
        server.server_close()
