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
        """Return the position of the next read, in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position, as `io.IOBase.seek` does, and return it."""
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def close(self) -> None:
        """Close the underlying file too."""
        self._stream.close()
        super().close()
