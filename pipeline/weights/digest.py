"""A gigabyte takes seconds to hash and is asked for at every start, so a hash is remembered until its file changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

_MEMORY = "hashes.json"
SETTLED_SECONDS = (
    2.0  # a younger file may change again without a change of its times: FAT counts in steps of two seconds
)


def sha256(path: Path, memory: Path, *, remembered: bool = True) -> str:
    """The sha256 of a file in hex; a settled file is read once for each (device, inode, size, times of change).

    This guards against broken downloads and mixed-up files, not against intruders.

    Args:
        path: the file.
        memory: folder in which hashes are remembered; where it cannot be written, the file is read each time.
        remembered: false to read the file whatever is remembered of it.
    """
    status = path.stat()
    changed = max(status.st_mtime, status.st_ctime)
    key = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
    if remembered and (known := _read(memory / _MEMORY).get(key)):
        return known
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if time.time() - changed < SETTLED_SECONDS:
        return digest
    with contextlib.suppress(OSError):
        write_whole(memory / _MEMORY, json.dumps(_read(memory / _MEMORY) | {key: digest}).encode())
    return digest


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no reader, and no second writer, ever meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read(path: Path) -> dict[str, str]:
    try:
        known = json.loads(path.read_bytes())
    except (OSError, ValueError):  # absent, or damaged: hashing again mends it
        return {}
    return known if isinstance(known, dict) else {}
