"""Digests of file contents, for collections with unreliable times: copied, checked out or synchronised.

Each file is read once. Its digest is stored in the output, with the file's status at that time. On a disk the status
includes the inode's change time, which users cannot set. So a changed file with the same size and time is read again. A
bucket's listing has only size and time; both are reliable.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from framekiln.contract.errors import DamagedError, MediaError
from framekiln.contract.output_names import DIGESTS
from framekiln.media.access import access_errors
from framekiln.media.damaged import check_written
from framekiln.media.files import MediaFile, open_media
from framekiln.media.media_ids import is_url
from framekiln.output.object_store import Store

_PIECE = 1 << 20  # bytes of one read; hashlib releases the GIL
_READERS = 8  # more threads than cores: requests to a bucket mostly wait
DIGEST_SCHEMA = pa.schema([("path", pa.binary()), ("stamp", pa.string()), ("digest", pa.string())])

Key = tuple[bytes, str]


def with_digests(
    store: Store, media: Sequence[MediaFile], *, keep: bool, on_message: Callable[[str], None] = lambda _: None
) -> list[MediaFile]:
    """Return the files with their digests: 32 hex digits of BLAKE2b, empty for an unreadable file.

    Known digests are in the output; `keep` stores new ones there. `on_message` gets the amount to be read.
    """
    tables = []
    for name in store.names(DIGESTS):
        with suppress(DamagedError):  # the files are read again
            tables.append(store.read_table(f"{DIGESTS}/{name}", expected=DIGEST_SCHEMA))
    known = {(row["path"], row["stamp"]): row["digest"] for table in tables for row in table.to_pylist()}
    sidecars = {item.sidecar.path: item.sidecar for item in media if item.sidecar is not None}
    files = {item.path: item for item in (*sidecars.values(), *media)}
    keys = {path: (os.fsencode(path), _make_stamp(item)) for path, item in files.items()}
    missing = {key: files[path] for path, key in keys.items() if key not in known}
    if missing:
        size = sum(item.size for item in missing.values())
        on_message(f"Reading {len(missing):,} files ({size / 1e6:,.1f} MB) to compare their contents.")
        with ThreadPoolExecutor(_READERS) as pool:
            digests = dict(zip(missing, pool.map(digest, missing.values()), strict=True))
        known |= digests
        if keep:
            _write(store, digests)
    digests_of = {path: known[key] for path, key in keys.items()}
    sidecars = {path: replace(item, digest=digests_of[path]) for path, item in sidecars.items()}
    return [
        replace(item, digest=digests_of[item.path], sidecar=item.sidecar and sidecars[item.sidecar.path])
        for item in media
    ]


def digest(media: MediaFile) -> str:
    """Return the digest of a file's content; empty if it is unreadable, which decoding reports."""
    state = hashlib.blake2b(digest_size=16)
    try:
        with access_errors(), open_media(media) as stream:
            check_written(stream)
            while piece := stream.read(_PIECE):
                state.update(piece)
    except MediaError:
        return ""
    return state.hexdigest()


def _make_stamp(media: MediaFile) -> str:
    facts = [media.size, media.mtime_ns]
    if not is_url(media.path):
        with suppress(OSError, ValueError):  # the file is gone, or its folder is forbidden: decoding reports it
            status = Path(media.path).stat()
            facts = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    return ":".join(map(str, facts))


def _write(store: Store, digests: dict[Key, str]) -> None:
    rows = [{"path": path, "stamp": stamp, "digest": value} for (path, stamp), value in digests.items() if value]
    if rows:
        table = pa.Table.from_pylist(rows, schema=DIGEST_SCHEMA)
        name = hashlib.blake2b(repr(rows).encode(), digest_size=8).hexdigest()
        store.write_table(f"{DIGESTS}/{name}-{len(rows)}.parquet", table)
