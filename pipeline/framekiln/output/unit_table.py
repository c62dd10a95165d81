"""The units of an output, written before anything is computed for them, so that every run forms the same ones."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from framekiln.contract.output_names import UNITS
from framekiln.media.discovery.listing import in_shard, shard
from framekiln.media.files import MediaFile
from framekiln.media.units import Unit, form_units
from framekiln.output.object_store import Store

_FILE = [
    ("path", pa.binary()),
    ("size", pa.int64()),
    ("mtime_ns", pa.int64()),
    ("digest", pa.string()),  # empty where files were compared by time
]
UNITS_TABLE = pa.schema(
    [
        ("unit", pa.string()),
        ("media_id", pa.string()),
        *_FILE,
        ("attempt", pa.int64()),  # of the unit; see `Unit`
        ("sidecar", pa.struct([*_FILE, ("media_id", pa.string())])),  # null without one
    ]
)


def read_units(store: Store) -> list[Unit]:
    """Return all units that were ever formed for an output; a copy of a table beside it changes nothing."""
    members: dict[tuple[str, int], dict[str, MediaFile]] = defaultdict(dict)
    for name in store.names(UNITS):
        table = store.read_table(f"{UNITS}/{name}", expected=UNITS_TABLE)
        for row in table.select(UNITS_TABLE.names).to_pylist():
            unit = row.pop("unit"), row.pop("attempt")
            sidecar = row.pop("sidecar")
            members[unit].setdefault(row["media_id"], replace(_read(row), sidecar=sidecar and _read(sidecar)))
    return [Unit(name=name, media=tuple(media.values()), attempt=attempt) for (name, attempt), media in members.items()]


def _read(row: dict[str, Any]) -> MediaFile:
    return MediaFile(**row | {"path": os.fsdecode(row["path"])})


def is_unchanged(before: MediaFile, now: MediaFile | None) -> bool:
    """Return whether a file and its sidecar are the same: by digest if both are known, else by size and time."""
    if now is None or before.size != now.size:
        return False
    if not (now.sidecar is None if before.sidecar is None else is_unchanged(before.sidecar, now.sidecar)):
        return False
    return before.digest == now.digest if before.digest and now.digest else before.mtime_ns == now.mtime_ns


def divide_into_units(
    store: Store, listing: list[MediaFile], chosen: list[MediaFile], slots: int, share: tuple[int, int] | None = None
) -> tuple[list[Unit], list[Unit]]:
    """Return known units of the chosen files, with all members unchanged, and new units for the other files.

    An added file does not change existing units. A unit with a changed or removed file is retired; its other files get
    a new unit. If two units hold a file, the later attempt counts. Of a shard's `share`, a known unit belongs to the
    shard of its first file, so that no two shards work on one unit.
    """
    current = {media.media_id: media for media in listing}
    chosen_ids = {media.media_id for media in chosen}
    known = sorted(read_units(store), key=lambda unit: -unit.attempt)
    alive = [unit for unit in known if all(is_unchanged(media, current.get(media.media_id)) for media in unit.media)]
    covered: set[str] = set()
    units = []
    for unit in alive:
        names = {media.media_id for media in unit.media}
        if names <= covered:
            continue
        if names & chosen_ids and (share is None or in_shard(unit.media[0].media_id, *share)):
            members = tuple(current[media.media_id] for media in unit.media)
            units.append(replace(unit, media=members, superseded=frozenset(names & covered)))
        covered |= names
    rest = [media for media in chosen if media.media_id not in covered]
    return units, form_units(rest if share is None else shard(rest, *share), slots=slots)


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
            "sidecar": [
                item.sidecar and {**asdict(item.sidecar), "path": os.fsencode(item.sidecar.path)} for item in media
            ],
        }
        others = {name: [getattr(item, name) for item in media] for name in UNITS_TABLE.names if name not in columns}
        table = pa.table(columns | others, schema=UNITS_TABLE)
        store.write_table(f"{UNITS}/{fresh[0].name}-{len(fresh)}.parquet", table)
