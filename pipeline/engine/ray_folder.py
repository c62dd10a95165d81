"""A folder for a local Ray, which no other user can enter: its default, /tmp/ray, is open to all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from pipeline.contract.errors import ResourceError

_PREFIX = "framemill-"
_OURS = re.compile(re.escape(_PREFIX) + r"(?P<pid>\d+)-\w+")
_LONGEST = (
    20  # letters of the parent: a socket's path has 107 at most, and Ray adds 62, as in "/session_.../sockets/..."
)


@contextmanager
def private_folder() -> Iterator[str]:
    """Yield a new folder in `RAY_TMPDIR` or the system's folder for temporary files; it is removed after the block.

    Folders that killed runs left are removed first.

    Raises:
        ResourceError: no such folder is writable, or its path is too long.
    """
    reasons = []
    for parent in dict.fromkeys([os.environ.get("RAY_TMPDIR"), os.environ.get("TMPDIR"), "/tmp", "/var/tmp"]):  # noqa: S108
        if parent and len(parent) <= _LONGEST:
            try:
                folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent)
            except OSError as error:
                reasons.append(f"{parent}: {error.strerror}")
                continue
            break
    else:
        raise ResourceError(
            f"Ray has no folder for its sockets ({'; '.join(reasons)}); set RAY_TMPDIR to a writable folder with a "
            f"path of at most {_LONGEST} letters.",
            code="FM-NO-TEMPORARY-FOLDER",
        )
    _remove_left(Path(parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left(parent: Path) -> None:
    with suppress(OSError):
        for path in parent.iterdir():
            if (match := _OURS.fullmatch(path.name)) and not psutil.pid_exists(int(match["pid"])):
                shutil.rmtree(path, ignore_errors=True)  # another user's stays: it is not ours to remove
