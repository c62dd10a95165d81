"""Paths that a person names, and small files read whole: settings, and what caches keep.

A user without a home, a named pipe or a sparse file of a terabyte in their place costs a sentence, not the process.
"""

import errno
import os
import stat
from pathlib import Path

_MOST = 64 << 20  # bytes: no file of settings or of a cache comes near it; a calibration of all steps has 0.1 MB


def expand(path: str | Path) -> Path:
    """Return a path with the home folder for `~`; as it is for an unknown user, and for one without a home."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib raises RuntimeError for these


def read_small(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError: there is none that can be read, or it has more bytes."""
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if status.st_size > _MOST:
            raise OSError(errno.EFBIG, f"it has more than {_MOST:,} bytes", str(path))
        return file.read()
