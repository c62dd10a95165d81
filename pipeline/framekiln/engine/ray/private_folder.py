"""A folder for a local Ray, which no other user can enter: its default, /tmp/ray, is open to all."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from framekiln.contract.errors import ResourceError

_PREFIX = "framekiln-run-"
_LONGEST = 18  # letters of the parent: a socket's path has 107 at most, we add 25, and Ray up to 64
_TRIES, _PAUSE_S = 20, 0.1  # two seconds to remove it; then the next run does


@contextmanager
def private_folder() -> Iterator[str]:
    """Yield a new folder in `RAY_TMPDIR` or the system's folder for temporary files; it is removed after the block.

    The folder is locked as long as this process lives. Folders that nobody has locked, left by killed runs, are
    removed first: process ids would not do, since containers with other ids may share the parent.

    Raises:
        ResourceError: no such folder is writable, or its path is too long.
    """
    reasons = []
    for parent in dict.fromkeys([os.environ.get("RAY_TMPDIR"), os.environ.get("TMPDIR"), "/tmp", "/var/tmp"]):  # noqa: S108
        if parent and len(parent) <= _LONGEST:
            try:
                folder, lock = _lock_folder(parent)
            except OSError as error:
                reasons.append(f"{parent}: {error.strerror}")
                continue
            break
    else:
        raise ResourceError(
            f"Ray has no folder for its sockets ({'; '.join(reasons)}); set RAY_TMPDIR to a writable folder with a "
            f"path of at most {_LONGEST} letters.",
            code="FK-NO-TEMPORARY-FOLDER",
        )
    try:
        with suppress(OSError):
            for path in Path(parent).glob(f"{_PREFIX}*"):
                _remove_unlocked(path)
        yield folder
    finally:
        for _ in range(_TRIES):  # Ray's last processes may still write into it
            shutil.rmtree(folder, ignore_errors=True)
            if not Path(folder).exists():
                break
            time.sleep(_PAUSE_S)
        os.close(lock)


def _lock_folder(parent: str) -> tuple[str, int]:
    """Return a new folder and the descriptor that holds its lock; another run may remove it before it is locked."""
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_SH)  # waits for another run that is removing the folder
            if Path(folder).exists():
                return folder, lock
            os.close(lock)


def _remove_unlocked(path: Path) -> None:
    with suppress(OSError):  # another user's: it is not ours to remove
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
