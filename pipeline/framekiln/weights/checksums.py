"""The folder of what a machine keeps between runs, and file hashes in it: hashing a gigabyte takes seconds."""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from platformdirs import user_cache_path


def cache_root() -> Path:
    """Return `FRAMEKILN_CACHE`, by default the user's cache folder (~/.cache/framekiln); it need not exist.

    In a container it is a mounted folder, or each start would compile and download again. A user without a home, as
    an arbitrary number in a container is, has a folder for temporary files.
    """
    if folder := os.environ.get("FRAMEKILN_CACHE"):
        return Path(folder)
    try:
        return user_cache_path("framekiln")
    except RuntimeError:
        return Path(tempfile.gettempdir(), f"framekiln-{os.getuid()}")


_CACHE_FILE = "hashes.json"
SETTLED_SECONDS = 2.0  # a younger file may change without new times: FAT stores them in steps of two seconds


def sha256(path: Path, cache: Path, *, use_cache: bool = True) -> str:
    """Return the sha256 of a file in hex; a settled file is read once per (device, inode, size, times of change).

    The folder of hashes guards against broken downloads and mixed-up files, not against intruders. Where it is not
    writable, the file is read each time.
    """
    status = path.stat()
    changed = max(status.st_mtime, status.st_ctime)
    key = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
    if use_cache and (known := _read(cache / _CACHE_FILE).get(key)):
        return known
    digest = digest_of(path)
    if time.time() - changed < SETTLED_SECONDS:
        return digest
    with suppress(OSError), atomic_file(cache / _CACHE_FILE) as file:
        file.write_text(json.dumps(_read(cache / _CACHE_FILE) | {key: digest}))
    return digest


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file that takes the place of another at the end, so that nobody sees an incomplete one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def digest_of(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path) -> dict[str, str]:
    try:
        hashes = json.loads(path.read_bytes())
    except (OSError, RecursionError, ValueError):  # absent or damaged: hashing again repairs it
        return {}
    return hashes if isinstance(hashes, dict) else {}
