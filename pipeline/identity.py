"""Files told apart by what they hold, for collections whose times say nothing: copied, checked out or synchronised.

Each file is read once: its digest lies in the output, with what the file system said of the file then. On a disk that
includes the time of the inode's last change, which nobody can set: so a file whose content was replaced under the same
size and time is read again. A bucket's listing has no more than size and time, and tells the truth about them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from pipeline.errors import MediaError
from pipeline.media.names import is_url
from pipeline.media.store import Media, open_media
from pipeline.storage import Store

DIGESTS = "digests"
_PIECE = 1 << 20  # bytes read at a time; hashlib lets other threads run meanwhile
_READERS = 8  # more than cores: in a bucket a request waits for its answer most of the time
_SCHEMA = pa.schema([("path", pa.binary()), ("stamp", pa.string()), ("digest", pa.string())])

Key = tuple[bytes, str]


def with_digests(
    store: Store, media: Sequence[Media], *, keep: bool, say: Callable[[str], None] = lambda _: None
) -> list[Media]:
    """The files with their digests: 32 hex digits of BLAKE2b, empty where a file cannot be read.

    Args:
        store: the output, where known digests lie.
        media: files.
        keep: write new digests down there.
        say: told, in a sentence, how much is to be read.
    """
    known = _known(store)
    keys = [(os.fsencode(item.path), _stamp(item)) for item in media]
    missing = {key: item for key, item in zip(keys, media, strict=True) if key not in known}
    if missing:
        size = sum(item.size for item in missing.values())
        say(f"Reading {len(missing):,} files ({size / 1e6:,.1f} MB) to tell them by content.")
        with ThreadPoolExecutor(_READERS) as pool:
            found = dict(zip(missing, pool.map(digest, missing.values()), strict=True))
        known |= found
        if keep:
            _keep(store, found)
    return [replace(item, digest=known[key]) for item, key in zip(media, keys, strict=True)]


def digest(media: Media) -> str:
    """32 hex digits of what a file holds; empty where it cannot be read, which decoding will say."""
    state = hashlib.blake2b(digest_size=16)
    try:
        with open_media(media) as stream:
            while piece := stream.read(_PIECE):
                state.update(piece)
    except (MediaError, OSError):
        return ""
    return state.hexdigest()


def _stamp(media: Media) -> str:
    facts = [media.size, media.mtime_ns]
    if not is_url(media.path) and (path := Path(media.path)).exists():
        status = path.stat()
        facts = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    return ":".join(map(str, facts))


def _known(store: Store) -> dict[Key, str]:
    tables = [store.read_table(f"{DIGESTS}/{name}") for name in store.names(DIGESTS)]
    return {(row["path"], row["stamp"]): row["digest"] for table in tables for row in table.to_pylist()}


def _keep(store: Store, found: dict[Key, str]) -> None:
    rows = [{"path": path, "stamp": stamp, "digest": one} for (path, stamp), one in found.items() if one]
    if rows:
        table = pa.Table.from_pylist(rows, schema=_SCHEMA)
        name = hashlib.blake2b(repr(rows).encode(), digest_size=8).hexdigest()
        store.write_table(f"{DIGESTS}/{name}-{len(rows)}.parquet", table)
