"""Records that are written after others: they wait in a temporary file, so memory does not grow with their number."""

import json
import tempfile
from collections import defaultdict
from typing import IO, Any

import pyarrow as pa

_AT_ONCE = 1 << 20  # bytes


class Spool:
    """Lists of texts by name, with a separator between them."""

    def __init__(self, separator: str = ",\n") -> None:
        self._separator = separator.encode()
        self._files: dict[str, IO[bytes]] = defaultdict(tempfile.TemporaryFile)

    def add(self, name: str, text: str) -> None:
        """Append a text to a list."""
        file = self._files[name]
        file.write((self._separator if file.tell() else b"") + text.encode())

    def add_json(self, name: str, record: Any) -> None:
        """Append a record as JSON; times and the like become texts."""
        self.add(name, json.dumps(record, default=str))

    def copy(self, name: str, stream: pa.NativeFile) -> None:
        """Write a list into a stream, and forget it."""
        with self._files[name] as file:
            file.seek(0)
            while data := file.read(_AT_ONCE):
                stream.write(data)
        del self._files[name]
