"""An object store that speaks as much S3 as Arrow needs, with a delay before each answer.

    python -m tests.support.machine.object_server FOLDER [--delay 0.025]

The command serves the files of a folder in the bucket `b`, and prints its URL.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@dataclass
class Objects:
    """The objects by key, what happens before each answer, and the requests so far."""

    files: dict[str, bytes] = field(default_factory=dict)
    before: Callable[[str, str], str | None] = lambda method, key: None  # it may name a fault
    parts: dict[str, bytes] = field(default_factory=dict)  # of uploads that are not complete
    sent: int = 0  # bytes of objects
    requests: list[tuple[str, str]] = field(default_factory=list)  # method and key
    port: int = 0
    page: int = 1000  # keys and folders of one answer to a listing
    ended: threading.Event = field(default_factory=threading.Event)
    lag: int = 0  # requests after which a listing shows what was written or deleted
    changes: list[tuple[int, str, bytes | None]] = field(default_factory=list)  # by number of the request, old content

    def change(self, key: str, content: bytes | None) -> None:
        """Write an object, or delete it with None; it is read at once, and listed later."""
        self.changes.append((len(self.requests), key, self.files.get(key)))
        if content is None:
            self.files.pop(key, None)
        else:
            self.files[key] = content

    def listed(self) -> dict[str, bytes]:
        """The objects that a listing shows."""
        listed = dict(self.files)
        for number, key, before in reversed(self.changes if self.lag else []):
            if number > len(self.requests) - self.lag:
                if before is None:
                    listed.pop(key, None)
                else:
                    listed[key] = before
        return listed

    def count(self, work: Callable[[], object]) -> list[tuple[str, str]]:
        """Do work, and return its requests."""
        before = len(self.requests)
        work()
        return self.requests[before:]

    @property
    def url(self) -> str:
        """The bucket's URL, with a place for a prefix."""
        return f"s3://id:secret@b/{{}}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=here"


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # the connections of all threads of a client, which begin at once

    def handle_error(self, *_: object) -> None:
        """Pass over clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cut = False  # half of the next body is sent
    slow = False  # 20 bytes of it a second

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def do_PUT(self) -> None:
        objects, key, query = self.take()
        body = self.body()
        name = f"{key} {query['partNumber'][0]}" if "partNumber" in query else key
        objects.parts.update({name: body}) if "partNumber" in query else objects.change(name, body)
        self.respond(200, b"")

    def do_POST(self) -> None:
        """Begin or complete an upload in parts."""
        objects, key, query = self.take()
        self.body()
        if "uploadId" in query:
            parts = sorted(
                (name for name in objects.parts if name.startswith(f"{key} ")), key=lambda n: int(n.split()[-1])
            )
            objects.change(key, b"".join(objects.parts.pop(name) for name in parts))
        kind = "CompleteMultipartUploadResult" if "uploadId" in query else "InitiateMultipartUploadResult"
        self.respond(200, f'<?xml version="1.0"?><{kind}><Key>{key}</Key><UploadId>1</UploadId></{kind}>'.encode())

    def do_DELETE(self) -> None:
        objects, key, _ = self.take()
        objects.change(key, None)
        self.respond(204, b"")

    def body(self) -> bytes:
        """The bytes of a request. Arrow sends chunks of HTTP, which are chunks of AWS with a checksum at their end."""
        length = self.headers["Content-Length"]
        raw = self.rfile.read(int(length)) if length else b"".join(read_chunks(self.rfile))
        return b"".join(read_chunks(BytesIO(raw))) if self.headers["Content-Encoding"] == "aws-chunked" else raw

    def take(self) -> tuple[Objects, str, dict[str, list[str]]]:
        """The objects, and the key and the query of this request, after what is done before each answer."""
        objects: Objects = self.server.objects
        place = urlsplit(self.path)
        key = unquote(place.path).removeprefix("/b").removeprefix("/")
        objects.requests.append((self.command, key))
        if fault := objects.before(self.command, key):
            self.fail(fault, key)
        return objects, key, parse_qs(place.query, keep_blank_values=True)

    def fail(self, fault: str, key: str) -> None:
        """Answer as a bucket in trouble does: slow-down (503), denied (403), cut (a short body), trickle or reset."""
        if fault in ("slow-down", "denied"):
            self.body() if self.command in ("PUT", "POST") else b""
            status, code = (503, b"SlowDown") if fault == "slow-down" else (403, b"AccessDenied")
            self.respond(
                status, b"<?xml version='1.0'?><Error><Code>%b</Code><Message>%b</Message></Error>" % (code, code)
            )
        elif fault == "cut" and self.command == "GET" and key in self.server.objects.files:
            self.cut = True
            return
        elif fault == "trickle":
            self.slow = True
            return
        else:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())
        raise ConnectionAbortedError(fault)

    def answer(self) -> None:
        objects, key, query = self.take()
        if not key:
            self.respond(200, self.listing(objects, query))
        elif key not in objects.files:
            self.respond(404, b"")
        else:
            content = objects.files[key]
            first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
            start, stop = int(first or 0), min(len(content), int(last or len(content)) + 1)
            span = {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}"} if first else {}
            objects.sent += (stop - start) * (self.command == "GET")
            self.respond(206 if first else 200, content[start:stop], **span)

    def listing(self, objects: Objects, query: dict[str, list[str]]) -> bytes:
        prefix, divider = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        files = objects.listed()
        keys = [key for key in sorted(files) if key.startswith(prefix)]
        below = {key: key[len(prefix) :].partition(divider) if divider else (key, "", "") for key in keys}
        folders = sorted({prefix + name + divider for name, found, _ in below.values() if found})
        found = [
            f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>e</ETag></Contents>"
            for key, content in ((key, files[key]) for key in keys if not below[key][1])
        ]
        found += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders]
        start = int(query.get("continuation-token", ["0"])[0])
        rows, after = found[start : start + objects.page], start + objects.page
        more = f"<NextContinuationToken>{after}</NextContinuationToken>" if after < len(found) else ""
        return (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
            f"<Prefix>{escape(prefix)}</Prefix><KeyCount>{len(rows)}</KeyCount><MaxKeys>{objects.page}</MaxKeys>"
            f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}{''.join(rows)}</ListBucketResult>"
        ).encode()

    def respond(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "ETag": '"e"', **headers}.items():
            self.send_header(name, value)
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        for byte in body if self.slow and self.command != "HEAD" else ():
            self.wfile.write(bytes([byte]))
            if self.server.objects.ended.wait(0.05):
                raise ConnectionAbortedError
        if self.command != "HEAD" and not self.slow:
            self.wfile.write(body[: len(body) // 2] if self.cut else body)
        self.close_connection, self.cut = self.close_connection or self.cut, False

    def log_message(self, *_: object) -> None:
        pass


def read_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the chunks of a stream in the transfer coding of HTTP or AWS, up to the lines after the last one."""
    while (size := int(stream.readline().split(b";")[0], 16)) > 0:
        yield stream.read(size)
        stream.readline()
    while stream.readline().strip():
        pass


@contextmanager
def served(objects: Objects) -> Iterator[Objects]:
    """Serve objects during the block."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.daemon_threads, server.objects, objects.port = True, objects, server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield objects
    finally:
        objects.ended.set()
        server.shutdown()
        server.server_close()


def main() -> None:
    """Serve a folder until this process is ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay", type=float, default=0.025)
    options = parser.parse_args()
    files = {str(path.relative_to(options.folder)): path.read_bytes() for path in options.folder.rglob("*.*")}
    with served(Objects(files=files, before=lambda *_: time.sleep(options.delay))) as objects:
        print(objects.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
