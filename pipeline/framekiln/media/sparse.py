"""Sparse files: a file may state 15 TB and have 4 KB. Decoders would search the rest for hours."""

import errno
import io
import os
from typing import BinaryIO

from framekiln.contract.errors import MediaError, Reason

LARGE_HOLE = 1 << 30
"""Bytes of one stretch that was never written: decoders read over smaller ones in a second or two."""


def check_written(stream: BinaryIO) -> None:
    """Check that no large stretch of a file was never written, as in an interrupted download or copy.

    Only the disk's map of the file is read. Stores and file systems without such a map count as written.
    Raises MediaError: TRUNCATED.
    """
    if (place := _find_hole(stream)) is not None:
        raise MediaError(
            Reason.TRUNCATED, f"it is sparse: from byte {place:,} on, {LARGE_HOLE:,} bytes or more were never written"
        )


def _find_hole(stream: BinaryIO) -> int | None:
    """Return where the first large hole begins; None if there is none."""
    if not isinstance(stream, io.BufferedReader) or not hasattr(os, "SEEK_HOLE"):
        return None
    handle, at = stream.fileno(), 0
    size, before = os.fstat(handle).st_size, os.lseek(handle, 0, os.SEEK_CUR)
    try:
        while size - at >= LARGE_HOLE:
            hole = os.lseek(handle, at, os.SEEK_HOLE)
            at = _find_data(handle, hole, size)
            if at - hole >= LARGE_HOLE:
                return hole
    except OSError:  # a file system without a map
        return None
    finally:
        os.lseek(handle, before, os.SEEK_SET)  # where the stream believes to be
    return None


def _find_data(handle: int, at: int, size: int) -> int:
    try:
        return os.lseek(handle, at, os.SEEK_DATA)
    except OSError as exc:
        if exc.errno == errno.ENXIO:  # no data up to the end
            return size
        raise
