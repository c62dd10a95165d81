"""Ranges of videos and archives in buckets, cached in this process for a while.

A video is opened for its type, its frames and its sound; a transport stream once more for its joins. libav reads pieces
of 256 KB. Members of an archive are neighbours. Each range is requested once.
"""

import threading
import time
from collections import OrderedDict
from concurrent.futures import Future, wait
from typing import BinaryIO

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.access import access_errors
from framekiln.media.network import LEAST_RATE, network
from framekiln.media.stream_view import StreamView

_BLOCK = 1 << 20  # bytes of one request: 10 to 25 ms of a network, and a second of a video of 8 Mbit/s
_KEPT = 64  # blocks of all files in this process, 64 MB: enough for many videos' two places and index
_SHORT = "Failed to flush response stream"  # AWS's client raises it for a refusal that is longer than the content
_TRIES, _WAIT_S = 4, 0.1  # tries then; each wait is twice the one before
_lock = threading.Lock()
_blocks: "OrderedDict[tuple[object, int], bytes]" = OrderedDict()


def read_range(stream: BinaryIO, size: int, start: int = 0) -> bytes:
    """Return a part of an object of a bucket.

    AWS's client takes the text of a refusal for the content, and fails if the content is shorter than this text.
    """
    for attempt in range(_TRIES):
        try:
            stream.seek(start)
            return stream.read(size)
        except OSError as error:
            if attempt == _TRIES - 1 or _SHORT not in str(error):
                raise
            time.sleep(_WAIT_S * 2**attempt)
    raise AssertionError


def _read_in_time(stream: BinaryIO, size: int, start: int) -> bytes:
    """Return a part of an object, unless the bucket sends less than the least rate, which no timeout of AWS ends.

    The request goes on in its thread. It holds back only the end of a process that does not end by `os._exit`.
    """
    content: Future[bytes] = Future()

    def work() -> None:
        try:
            content.set_result(read_range(stream, size, start))
        except BaseException as error:  # raised below
            content.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    seconds = network().patience_s + size / LEAST_RATE
    if not wait([content], seconds).done:
        raise MediaError(Reason.UNREACHABLE, f"{size:,} bytes took longer than {seconds:.0f} s (network.timeout_s)")
    return content.result()


class CachedStream(StreamView):
    """A file of a bucket, read by blocks; a larger part is one request, and is not cached.

    Reading raises `MediaError`: decoders take an OSError for the end of the file, or for damage.
    """

    def __init__(self, stream: BinaryIO, size: int, key: object) -> None:
        super().__init__(stream, size)
        self._key = key, size

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed's protocol of buffers
        """Fill the buffer; return fewer bytes only at the end of the file."""
        stop = min(self._size, self._at + len(buffer))
        begin = self._at
        if stop - begin > _BLOCK:
            buffer[: stop - begin] = self._read(begin, stop - begin)
            self._at = stop
            return stop - begin
        while self._at < stop:
            number, offset = divmod(self._at, _BLOCK)
            part = self._load(number)[offset : offset + stop - self._at]
            buffer[self._at - begin : self._at - begin + len(part)] = part
            self._at += len(part)
        return self._at - begin

    def _load(self, number: int) -> bytes:
        place = self._key, number
        with _lock:
            if (block := _blocks.get(place)) is not None:
                _blocks.move_to_end(place)
                return block
        block = self._read(number * _BLOCK, min(_BLOCK, self._size - number * _BLOCK))
        with _lock:
            _blocks[place] = block
            while len(_blocks) > _KEPT:
                _blocks.popitem(last=False)
        return block

    def _read(self, start: int, size: int) -> bytes:
        with access_errors():
            if len(data := _read_in_time(self._stream, size, start)) < size:
                raise OSError("it has become shorter")
            return data
