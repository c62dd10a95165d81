"""A part or another form of an open file, read and sought like a file."""

import io
import os
from typing import BinaryIO


class StreamView(io.RawIOBase):
    """A file of `size` bytes over another one, which it closes; subclasses read from position `_at`."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._size, self._at = stream, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def close(self) -> None:
        """Close the underlying file too."""
        self._stream.close()
        super().close()
