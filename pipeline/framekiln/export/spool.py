"""Records that are written after others: they wait in a temporary file, so memory does not grow with their number."""

import json
import tempfile
from collections import defaultdict
from typing import IO, Any

import pyarrow as pa

_AT_ONCE = 1 << 20  # bytes


class Spool:
    """Lists of JSON records by name, as the text between their brackets."""

    def __init__(self) -> None:
        self._files: dict[str, IO[bytes]] = defaultdict(tempfile.TemporaryFile)

    def add(self, name: str, record: Any) -> None:
        """Append a record to a list; times and the like become texts."""
        file = self._files[name]
        file.write((b",\n" if file.tell() else b"") + json.dumps(record, default=str).encode())

    def copy(self, name: str, stream: pa.NativeFile) -> None:
        """Write a list into a stream, and forget it."""
        with self._files[name] as file:
            file.seek(0)
            while data := file.read(_AT_ONCE):
                stream.write(data)
        del self._files[name]
