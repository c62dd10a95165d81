"""Photos of a bucket or a web server, read before they are decoded: a request takes as long as decoding some.

Arrow requests a file's size before its content, so a photo costs two requests. Reading first for its type and then for
its content would cost four.
"""

import re
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import BinaryIO

from framekiln.media.files import MediaFile, read_whole
from framekiln.media.media_ids import is_url, is_web
from framekiln.media.members import split_member

_AHEAD = 32  # files being read or waiting to be decoded: 640 a second with 25 ms a request
_MOST_BYTES = 128_000_000  # most bytes of these, by the listing
_LARGEST = 32_000_000  # bytes of a file; larger ones take longer to decode than to wait for
_PHOTO = re.compile(r"\.(jpe?g|jpe|jfif|png|webp|gif|hei[cf]|avif|tiff?|bmp)$", re.I)
_NO_PHOTO = re.compile(r"\.(mp4|m4v|mov|mkv|webm|avi|mpe?g|ts|mts|m2ts|flv|wmv|og[vm]|3gp|tar|zip)$", re.I)
"""Names of videos and archives on web servers. Photos there have any name, or none."""


class ReadAhead:
    """The content of a unit's photos. They are requested in order; nothing is read before the first request."""

    def __init__(self, media: Sequence[MediaFile] = ()) -> None:
        self._left = deque(each for each in media if _is_remote_photo(each))
        self._reading: dict[str, tuple[int, Future[BinaryIO]]] = {}  # listed bytes and content, by path

    def take(self, media: MediaFile) -> BinaryIO | None:
        """Return the content of a file; None for a file that is read on decoding.

        Raises MediaError: see `read_whole`.
        """
        while self._left and (not self._reading or self._has_room(self._left[0].size)):
            each = self._left.popleft()
            self._reading[each.path] = each.size, _get_threads().submit(read_whole, each)
        _, content = self._reading.pop(media.path, (0, None))
        return None if content is None else content.result()

    def _has_room(self, size: int) -> bool:
        waiting = sum(listed for listed, _ in self._reading.values())
        return len(self._reading) < _AHEAD and waiting + size <= _MOST_BYTES

    def close(self) -> None:
        """Drop all content that was not taken."""
        self._left.clear()
        for _, content in self._reading.values():
            content.cancel()


@cache
def _get_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AHEAD, thread_name_prefix="read-ahead")


def _is_remote_photo(media: MediaFile) -> bool:
    is_remote = is_url(media.path) and not split_member(media.path)[1] and not media.path.lower().startswith("file:")
    is_photo = _PHOTO.search(media.media_id) or (is_web(media.path) and not _NO_PHOTO.search(media.media_id))
    return bool(is_remote and media.size <= _LARGEST and is_photo)
