"""The units of an output, written before any of their work, so that every run forms the same units."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from framekiln.contract.output_names import FRAMES, UNITS
from framekiln.media.discovery.listing import in_shard, shard
from framekiln.media.files import MediaFile
from framekiln.media.units import Unit, form_units
from framekiln.output.object_store import Store

_OF_A_UNIT = re.compile(r"(?:.*-)?(?P<unit>[0-9a-f]{16})-[0-9a-f]{12}\.parquet")
_FILE = [
    ("path", pa.binary()),
    ("size", pa.int64()),
    ("mtime_ns", pa.int64()),
    ("digest", pa.string()),  # empty if files were compared by time
]
UNITS_TABLE = pa.schema(
    [
        ("unit", pa.string()),
        ("media_id", pa.string()),
        *_FILE,
        ("attempt", pa.int64()),  # attempt of the unit; see `Unit`
        ("sidecar", pa.struct([*_FILE, ("media_id", pa.string())])),  # null without one
    ]
)


def read_units(store: Store) -> list[Unit]:
    """Return all units ever formed for an output; a copied table beside them changes nothing."""
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


def unit_of(path: str) -> str | None:
    """Return the unit of a table's file, by name or path; None for a file of several units."""
    match = _OF_A_UNIT.fullmatch(path.rpartition("/")[2])
    return match["unit"] if match else None


def tabulated_units(store: Store) -> set[str]:
    """Return the units with a file in `frames/`."""
    return {unit for name in store.names(FRAMES) if (unit := unit_of(name))}


def tabulated_files(store: Store) -> dict[str, MediaFile]:
    """Return the files behind `frames/` by media_id, as the rows there found them; all files before there are rows."""
    present = tabulated_units(store)
    units = sorted(read_units(store), key=lambda unit: unit.attempt)
    return {item.media_id: item for unit in units if not present or unit.name in present for item in unit.media}


def is_unchanged(before: MediaFile, now: MediaFile | None) -> bool:
    """Return whether a file and its sidecar are unchanged: by digest if both are known, else by size and time."""
    if now is None or before.size != now.size:
        return False
    if not (now.sidecar is None if before.sidecar is None else is_unchanged(before.sidecar, now.sidecar)):
        return False
    return before.digest == now.digest if before.digest and now.digest else before.mtime_ns == now.mtime_ns


def divide_into_units(
    store: Store, listing: list[MediaFile], chosen: list[MediaFile], slots: int, share: tuple[int, int] | None = None
) -> tuple[list[Unit], list[Unit]]:
    """Return known units of the chosen files, and new units for the other files.

    An added file does not change existing units. Changed or removed files are `stale` in their unit until `carry_over`
    makes a unit of the others. If two units hold a file, the later attempt counts, then the unit without stale files. A
    known unit belongs to the shard (`share`) of its first file, so that no two shards work on one unit.
    """
    current = {media.media_id: media for media in listing}
    chosen_ids = {media.media_id for media in chosen}
    origins: dict[str, list[str]] = defaultdict(list)  # units with stale files, by each of their files
    found = []
    for unit in read_units(store):
        stale = frozenset(m.media_id for m in unit.media if not is_unchanged(m, current.get(m.media_id)))
        for media in unit.media if stale else ():
            origins[media.media_id].append(unit.name)
        members = tuple(m if m.media_id in stale else current[m.media_id] for m in unit.media)
        moved = [item.path for item in members] != [item.path for item in unit.media]
        found.append(replace(unit, media=members, stale=stale, moved=moved))
    covered: set[str] = set()
    units = []
    for unit in sorted(found, key=lambda unit: (-unit.attempt, bool(unit.stale))):
        names = [media.media_id for media in unit.media if media.media_id not in unit.stale]
        if covered.issuperset(names):
            continue
        first = next(name for name in names if not (unit.stale and name in covered))
        if not chosen_ids.isdisjoint(names) and (share is None or in_shard(first, *share)):
            superseded = frozenset(covered.intersection(names))
            units.append(replace(unit, superseded=superseded, origins=tuple(origins[first])))
        covered.update(names)
    rest = [media for media in chosen if media.media_id not in covered]
    return units, form_units(rest if share is None else shard(rest, *share), slots=slots)


def sort_units(units: Iterable[Unit]) -> list[Unit]:
    """Sort units by their files, the row order of tables over a whole run."""
    return sorted(units, key=lambda unit: (unit.media[0].media_id, unit.attempt))


def write_units(store: Store, fresh: Sequence[Unit], known: Sequence[Unit] = ()) -> None:
    """Write new units before any of their work, and the new places of known ones that have moved."""
    places = {(unit.name, item.media_id): item.path for unit in known if unit.moved for item in unit.media}
    for name in store.names(UNITS) if places else ():
        rows = store.read_table(f"{UNITS}/{name}", UNITS_TABLE.names, expected=UNITS_TABLE).to_pylist()
        paths = [places.get((row["unit"], row["media_id"]), os.fsdecode(row["path"])) for row in rows]
        now = [row | {"path": os.fsencode(path)} for row, path in zip(rows, paths, strict=True)]
        if now != rows:
            store.write_table(f"{UNITS}/{name}", pa.Table.from_pylist(now, schema=UNITS_TABLE))
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
