"""Ranges of films and archives in buckets, kept by this process for a while.

A film is opened for its type, its frames and its sound, a transport stream once more for its joins, and libav reads
pieces of 256 KB. Members of an archive lie side by side. Each range is one request, and is asked for once.
"""

import threading
from collections import OrderedDict
from typing import BinaryIO

from framekiln.media.stream_view import StreamView

_BLOCK = 1 << 20  # bytes of one request: 10 to 25 ms of a network, and a second of a film of 8 Mbit/s
_KEPT = 64  # blocks of all files of this process, 64 MB: the two places of a film, and its index, many times over
_lock = threading.Lock()
_blocks: "OrderedDict[tuple[object, int], bytes]" = OrderedDict()


class CachedStream(StreamView):
    """A file of a bucket, read by blocks; a part above one block is one request, and is not kept."""

    def __init__(self, stream: BinaryIO, size: int, key: object) -> None:
        super().__init__(stream, size)
        self._key = key, size

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed's protocol of buffers
        """Fill the buffer; less only at the end of the file."""
        stop = min(self._size, self._at + len(buffer))
        begin = self._at
        if stop - begin > _BLOCK:
            self._stream.seek(begin)
            data = self._stream.read(stop - begin)
            buffer[: len(data)] = data
            self._at += len(data)
            return len(data)
        while self._at < stop:
            number, offset = divmod(self._at, _BLOCK)
            part = self._load(number)[offset : offset + stop - self._at]
            if not part:  # the object is shorter now
                break
            buffer[self._at - begin : self._at - begin + len(part)] = part
            self._at += len(part)
        return self._at - begin

    def _load(self, number: int) -> bytes:
        place = self._key, number
        with _lock:
            if (block := _blocks.get(place)) is not None:
                _blocks.move_to_end(place)
                return block
        self._stream.seek(number * _BLOCK)
        block = self._stream.read(min(_BLOCK, self._size - number * _BLOCK))
        with _lock:
            _blocks[place] = block
            while len(_blocks) > _KEPT:
                _blocks.popitem(last=False)
        return block
