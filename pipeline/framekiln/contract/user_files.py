"""Paths that a user gives, and small files that are read whole: settings and caches.

A user without a home, a named pipe or a sparse file of a terabyte gives an error message, not a dead process. Places
for results are checked before the work, which would be lost otherwise.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from framekiln.contract.errors import ConfigError, OutputError

_MOST = 64 << 20  # bytes, far above any file of settings or cache; a calibration of all steps has 0.1 MB


def expand(path: str | Path) -> Path:
    """Replace `~` by the home folder. The path of an unknown user, or of one without a home, stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib raises RuntimeError for these


def read_small(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError: it cannot be read, or has more bytes."""
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if status.st_size > _MOST:
            raise OSError(errno.EFBIG, f"it has more than {_MOST:,} bytes", str(path))
        return file.read()


def check_folder(option: str, path: Path, file: Path | None = None) -> None:
    """Check that a folder, or the folder of `file`, exists or can be made, and can be written. Makes nothing.

    Raises ConfigError: the path is no folder, or this user may not write into it.
    """
    place, given = expand(path).absolute(), str(file or path)
    existing = next(folder for folder in (place, *place.parents) if os.path.lexists(folder))
    if not existing.is_dir():
        problem = f"{option} {given!r}: {str(existing)!r} is not a folder; give another one."
        raise ConfigError(problem, code="FK-NOT-A-FOLDER")
    if not os.access(existing, os.W_OK | os.X_OK):
        problem = f"{option} {given!r}: this user may not write into {str(existing)!r}; give another folder."
        raise ConfigError(problem, code="FK-FOLDER-NOT-WRITABLE")


def check_file(option: str, path: Path) -> None:
    """Check that a file can be written, in a folder that exists or can be made.

    Raises ConfigError: see `check_folder`, or the path is a folder.
    """
    check_folder(option, expand(path).absolute().parent, path)
    if os.path.isdir(expand(path)):  # noqa: PTH112 - pathlib raises for a long name
        raise ConfigError(f"{option} {str(path)!r} is a folder; give the name of a file in it.", code="FK-IS-A-FOLDER")


@contextmanager
def writing(path: Path, *, code: str = "FK-BENCH-NOT-WRITABLE", fix: str = "choose another path") -> Iterator[Path]:
    """Make the folder of a file that the block writes. Raises OutputError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"{str(path)!r} cannot be written ({reason}); {fix}.", code=code) from error
