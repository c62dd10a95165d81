"""The units of an output, written before anything is computed for them, so that every run forms the same ones.

Collections with unreliable times, as they were copied, checked out or synchronised, have digests of their files too.
Each file is read once: its digest is stored in the output, with the file's status at that time. On a disk the status
includes the inode's change time, which no user can set. So a file with new content but the same size and time is read
again. A bucket's listing has only size and time, and both are reliable.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from framekiln.contract.errors import DamagedError, MediaError
from framekiln.contract.output_names import DIGESTS, UNITS
from framekiln.media.damaged import check_written
from framekiln.media.files import MediaFile, access_errors, open_media
from framekiln.media.media_ids import is_url
from framekiln.media.units import Unit, form_units
from framekiln.output.object_store import Store

UNITS_TABLE = pa.schema(
    [
        ("unit", pa.string()),
        ("media_id", pa.string()),
        ("path", pa.binary()),
        ("size", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("digest", pa.string()),  # empty where files were compared by time
        ("attempt", pa.int64()),  # of the unit; see `Unit`
    ]
)


def read_units(store: Store) -> list[Unit]:
    """Return all units that were ever formed for an output; a copy of a table beside it changes nothing."""
    members: dict[tuple[str, int], dict[str, MediaFile]] = defaultdict(dict)
    for name in store.names(UNITS):
        table = store.read_table(f"{UNITS}/{name}", expected=UNITS_TABLE)
        for row in table.select(UNITS_TABLE.names).to_pylist():
            unit = row.pop("unit"), row.pop("attempt")
            members[unit].setdefault(row["media_id"], MediaFile(**row | {"path": os.fsdecode(row["path"])}))
    return [Unit(name=name, media=tuple(media.values()), attempt=attempt) for (name, attempt), media in members.items()]


def is_unchanged(before: MediaFile, now: MediaFile | None) -> bool:
    """Return whether a file is the same: by digest if both are known, else by size and time."""
    if now is None or before.size != now.size:
        return False
    return before.digest == now.digest if before.digest and now.digest else before.mtime_ns == now.mtime_ns


def divide_into_units(
    store: Store, listing: list[MediaFile], selected: list[MediaFile], slots: int, *, sharded: bool = False
) -> tuple[list[Unit], list[Unit]]:
    """Return known units of the selected files, with all members unchanged, and new units for the other files.

    An added file does not change existing units. A unit with a changed or removed file is retired; its other files get
    a new unit. If two units hold a file, the later attempt counts. With `sharded`, a known unit belongs to the shard of
    its first file, so that no two shards work on one unit.
    """
    current = {media.media_id: media for media in listing}
    selected_ids = {media.media_id for media in selected}
    known = sorted(read_units(store), key=lambda unit: -unit.attempt)
    alive = [unit for unit in known if all(is_unchanged(media, current.get(media.media_id)) for media in unit.media)]
    covered: set[str] = set()
    units = []
    for unit in alive:
        names = {media.media_id for media in unit.media}
        if names <= covered:
            continue
        if (unit.media[0].media_id in selected_ids) if sharded else (names & selected_ids):
            members = tuple(current[media.media_id] for media in unit.media)
            units.append(replace(unit, media=members, superseded=frozenset(names & covered)))
        covered |= names
    fresh = form_units([media for media in selected if media.media_id not in covered], slots=slots)
    return units, fresh


def sort_units(units: Iterable[Unit]) -> list[Unit]:
    """Sort units by their files, the row order of tables over a whole run."""
    return sorted(units, key=lambda unit: (unit.media[0].media_id, unit.attempt))


def write_units(store: Store, fresh: Sequence[Unit]) -> None:
    """Write new units, before anything is computed for them."""
    if fresh:
        media = [item for unit in fresh for item in unit.media]
        columns: dict[str, list[Any]] = {
            "unit": [unit.name for unit in fresh for _ in unit.media],
            "attempt": [unit.attempt for unit in fresh for _ in unit.media],
            "path": [os.fsencode(item.path) for item in media],
        }
        others = {name: [getattr(item, name) for item in media] for name in UNITS_TABLE.names if name not in columns}
        table = pa.table(columns | others, schema=UNITS_TABLE)
        store.write_table(f"{UNITS}/{fresh[0].name}-{len(fresh)}.parquet", table)


_PIECE = 1 << 20  # bytes of one read; hashlib releases the GIL
_READERS = 8  # more than cores, since requests to a bucket mostly wait
DIGEST_SCHEMA = pa.schema([("path", pa.binary()), ("stamp", pa.string()), ("digest", pa.string())])

Key = tuple[bytes, str]


def with_digests(
    store: Store, media: Sequence[MediaFile], *, keep: bool, on_message: Callable[[str], None] = lambda _: None
) -> list[MediaFile]:
    """Return the files with their digests: 32 hex digits of BLAKE2b, empty for an unreadable file.

    Known digests are in the output; `keep` stores new ones there. `on_message` is told how much has to be read.
    """
    tables = []
    for name in store.names(DIGESTS):
        with suppress(DamagedError):  # the files are read again
            tables.append(store.read_table(f"{DIGESTS}/{name}", expected=DIGEST_SCHEMA))
    known = {(row["path"], row["stamp"]): row["digest"] for table in tables for row in table.to_pylist()}
    keys = [(os.fsencode(item.path), _stamp(item)) for item in media]
    missing = {key: item for key, item in zip(keys, media, strict=True) if key not in known}
    if missing:
        size = sum(item.size for item in missing.values())
        on_message(f"Reading {len(missing):,} files ({size / 1e6:,.1f} MB) to compare their contents.")
        with ThreadPoolExecutor(_READERS) as pool:
            digests = dict(zip(missing, pool.map(digest, missing.values()), strict=True))
        known |= digests
        if keep:
            _write(store, digests)
    return [replace(item, digest=known[key]) for item, key in zip(media, keys, strict=True)]


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


def _stamp(media: MediaFile) -> str:
    facts = [media.size, media.mtime_ns]
    if not is_url(media.path):
        with suppress(OSError, ValueError):  # it has gone, or its folder is forbidden: decoding reports it
            status = Path(media.path).stat()
            facts = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    return ":".join(map(str, facts))


def _write(store: Store, digests: dict[Key, str]) -> None:
    rows = [{"path": path, "stamp": stamp, "digest": value} for (path, stamp), value in digests.items() if value]
    if rows:
        table = pa.Table.from_pylist(rows, schema=DIGEST_SCHEMA)
        name = hashlib.blake2b(repr(rows).encode(), digest_size=8).hexdigest()
        store.write_table(f"{DIGESTS}/{name}-{len(rows)}.parquet", table)
