"""The folder that keeps files between runs, and a cache of file hashes in it: hashing a gigabyte takes seconds."""

import hashlib
import json
import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from platformdirs import user_cache_path

from framekiln.contract.user_files import read_small


def cache_root() -> Path:
    """Return `FRAMEKILN_CACHE`, by default the user's cache folder (~/.cache/framekiln); it need not exist.

    In a container it should be a mounted folder; otherwise each start compiles and downloads again. A user without a
    home (an arbitrary user id in a container) gets a folder for temporary files.
    """
    if folder := os.environ.get("FRAMEKILN_CACHE"):
        return Path(folder)
    try:
        return user_cache_path("framekiln")
    except RuntimeError:
        return Path(tempfile.gettempdir(), f"framekiln-{os.getuid()}")


_CACHE_FILE = "hashes.json"
_HEX = 64  # hex digits of a sha256
SETTLED_SECONDS = 2.0  # s: a younger file may change without new times, since FAT stores times in steps of two seconds


def sha256(path: Path, cache: Path, *, use_cache: bool = True) -> str:
    """Return the sha256 of a file in hex. A settled file is hashed once per (device, inode, size, times of change).

    The cache guards against broken downloads and mixed-up files, not against intruders. Where it is not
    writable, the file is read each time.
    """
    status = path.stat()
    changed = max(status.st_mtime, status.st_ctime)
    key = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
    if use_cache and (known := _read(cache / _CACHE_FILE).get(key, "")) == _sign(key, known[:_HEX]):
        return known[:_HEX]
    digest = digest_of(path)
    if time.time() - changed < SETTLED_SECONDS:
        return digest
    with suppress(OSError), atomic_file(cache / _CACHE_FILE) as file:
        file.write_text(json.dumps(_read(cache / _CACHE_FILE) | {key: _sign(key, digest)}))
    return digest


def _sign(key: str, digest: str) -> str:
    """Return a hash with a checksum of its own: a flipped bit in the cache would make a whole file look damaged."""
    return f"{digest}-{zlib.crc32(f'{key} {digest}'.encode()):08x}"


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` at the end of the block, so that no incomplete file is ever seen."""
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
        hashes = json.loads(read_small(path))
    except (OSError, RecursionError, ValueError):  # absent or damaged: hashing again repairs it
        return {}
    known = hashes.items() if isinstance(hashes, dict) else ()
    return {key: digest for key, digest in known if isinstance(digest, str)}
