"""Settings of a process that decodes."""

import ctypes
from contextlib import suppress

import cv2

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of `mallopt`'s parameters, malloc.h
_KEPT = 256 << 20  # bytes: the frames of a packet and of the next one
_LARGEST = 32 << 20  # bytes, the most that glibc allows: a frame of 3840 x 2160; larger blocks are given back


def use_one_thread() -> None:
    """Limit OpenCV to the calling thread: decode tasks run side by side, one for each core."""
    cv2.setNumThreads(1)


def keep_freed_memory() -> None:
    """Let this process keep up to 256 MB of freed memory; without effect on other C libraries than glibc.

    glibc gives blocks of the size of a frame back at once, and the kernel zeroes each page that it hands out again, at
    the cost of decoding it.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT)
        library.mallopt(_MMAP_THRESHOLD, _LARGEST)
