"""What is already done: resume is a listing, so a killed run costs what was in flight and nothing else.

A *unit* is a few files that are decoded together. Its rows have one order for ever, so a *part*, what one step added
to rows `start` to `stop` of a unit, is named by those numbers alone. A step is done with a unit when its parts tile
all rows, however they were cut. The decoder's own parts end with an empty one, whose number is the count of rows.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pipeline.media.store import Media
from pipeline.media.units import Unit, form_units
from pipeline.storage import Store

COLUMNS, UNITS = "columns", "units"
_AGAIN = ".again.parquet"
_PART = re.compile(r"(?P<unit>[0-9a-f]+)\.(?P<start>\d+)-(?P<stop>\d+)\.parquet")
_UNITS = pa.schema(
    [
        ("unit", pa.string()),
        ("media_id", pa.string()),
        ("path", pa.binary()),
        ("size", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("digest", pa.string()),  # empty where files were told by their time
        ("attempt", pa.int64()),  # of the unit; see `Unit`
    ]
)
Span = tuple[int, int]


@dataclass(frozen=True, order=True)
class Part:
    """What one step added to consecutive rows of a unit."""

    unit: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        """Its file name."""
        return f"{self.unit}.{self.start:08d}-{self.stop:08d}.parquet"

    @property
    def errors_name(self) -> str:
        """The file name of what failed in it."""
        return f"{self.name.removesuffix('.parquet')}.errors.parquet"

    @property
    def again_name(self) -> str:
        """The file name of its rows that are to be computed again: while there is one, the part is not done."""
        return f"{self.name.removesuffix('.parquet')}{_AGAIN}"


def tiling(spans: Iterable[Span], total: int) -> list[Span] | None:
    """Spans that cover 0 to `total` end to end, or None.

    Runs with other packet sizes may have left overlapping ones.
    """
    by_start: dict[int, list[int]] = defaultdict(list)
    for start, stop in spans:
        if start < stop:
            by_start[start].append(stop)
    reached: dict[int, Span | None] = {0: None}
    for start in sorted(by_start):
        if start in reached:
            for stop in by_start[start]:
                reached.setdefault(stop, (start, stop))
    if total not in reached:
        return None
    path: list[Span] = []
    while (span := reached[total]) is not None:
        path.append(span)
        total = span[0]
    return path[::-1]


class Ledger:
    """The parts in an output's `columns/`, listed once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spans: dict[str, dict[str, list[Span]]] = {}

    def spans(self, folder: str) -> dict[str, list[Span]]:
        """By unit, the spans of a step's parts."""
        if folder not in self._spans:
            found: dict[str, list[Span]] = defaultdict(list)
            names = self._store.names(f"{COLUMNS}/{folder}")
            marked = {name.removesuffix(_AGAIN) for name in names if name.endswith(_AGAIN)}
            for name in names:
                if (match := _PART.fullmatch(name)) and name.removesuffix(".parquet") not in marked:
                    found[match["unit"]].append((int(match["start"]), int(match["stop"])))
            self._spans[folder] = dict(found)
        return self._spans[folder]

    def total(self, decode: str, unit: str) -> int | None:
        """How many rows a unit has; None while it has never been decoded to its end."""
        ends = [start for start, stop in self.spans(decode).get(unit, ()) if start == stop]
        return max(ends, default=None)  # that of a film whose first segment could not be opened for a moment says 0

    def parts(self, folder: str, decode: str, unit: str) -> list[Part] | None:
        """The parts that hold all of a step's rows for a unit, in order; None when some are missing."""
        total = self.total(decode, unit)
        path = None if total is None else tiling(self.spans(folder).get(unit, ()), total)
        return None if path is None else [Part(unit, *span) for span in path]

    def has(self, folders: Sequence[str], unit: str) -> bool:
        """Whether steps are done with a unit; the decoder's folder comes first."""
        return all(self.parts(folder, folders[0], unit) is not None for folder in folders)

    def common(self, folders: Iterable[str], unit: str) -> frozenset[Span]:
        """The spans for which every one of some steps has a part."""
        return frozenset[Span].intersection(*(frozenset(self.spans(folder).get(unit, ())) for folder in folders))


def read_units(store: Store) -> list[Unit]:
    """All units that were ever formed for an output."""
    members: dict[tuple[str, int], list[Media]] = defaultdict(list)
    for name in store.names(UNITS):
        table = store.read_table(f"{UNITS}/{name}")
        own = [item for item in _UNITS.names if item in table.column_names]
        for values in zip(*(table[item].to_pylist() for item in own), strict=True):
            row = dict(zip(own, values, strict=True))
            unit = row.pop("unit"), row.pop("attempt", 0)
            members[unit].append(Media(**row | {"path": os.fsdecode(row["path"])}))
    return [Unit(name=name, media=tuple(media), attempt=attempt) for (name, attempt), media in members.items()]


def unchanged(before: Media, now: Media | None) -> bool:
    """Whether a file is what it was: by its content where that is known of both, else by size and time."""
    if now is None or before.size != now.size:
        return False
    return before.digest == now.digest if before.digest and now.digest else before.mtime_ns == now.mtime_ns


def divide(
    store: Store, listing: list[Media], selected: list[Media], slots: int, *, sharded: bool = False
) -> tuple[list[Unit], list[Unit]]:
    """Units for the selected media: known ones where every member is unchanged, and new ones for the rest.

    One added file shifts nothing. A unit with a file that was changed or removed is retired; its other files get a
    new one. Of a file that two units hold, the later attempt counts. With `sharded`, a known unit goes whole to the
    shard of its first file, so that no two shards work on one.
    """
    current = {media.media_id: media for media in listing}
    wanted = {media.media_id for media in selected}
    known = sorted(read_units(store), key=lambda unit: -unit.attempt)
    alive = [unit for unit in known if all(unchanged(media, current.get(media.media_id)) for media in unit.media)]
    covered: set[str] = set()
    units = []
    for unit in alive:
        names = {media.media_id for media in unit.media}
        if names <= covered:
            continue
        if (unit.media[0].media_id in wanted) if sharded else (names & wanted):
            members = tuple(current[media.media_id] for media in unit.media)
            units.append(replace(unit, media=members, superseded=frozenset(names & covered)))
        covered |= names
    fresh = form_units([media for media in selected if media.media_id not in covered], slots=slots)
    return units, fresh


def cover(store: Store, listing: list[Media], selected: list[Media], slots: int) -> list[Unit]:
    """The units of `divide`, the new ones written down."""
    known, fresh = divide(store, listing, selected, slots)
    write_units(store, fresh)
    return in_order(known + fresh)


def in_order(units: Iterable[Unit]) -> list[Unit]:
    """Units in the order of their files, whenever they were formed: tables of a whole run are made of them so."""
    return sorted(units, key=lambda unit: (unit.media[0].media_id, unit.attempt))


def write_units(store: Store, fresh: Sequence[Unit]) -> None:
    """Write new units down, before anything is computed for them."""
    if fresh:
        media = [item for unit in fresh for item in unit.media]
        columns: dict[str, list[Any]] = {
            "unit": [unit.name for unit in fresh for _ in unit.media],
            "attempt": [unit.attempt for unit in fresh for _ in unit.media],
            "path": [os.fsencode(item.path) for item in media],
        }
        others = {name: [getattr(item, name) for item in media] for name in _UNITS.names if name not in columns}
        table = pa.table(columns | others, schema=_UNITS)
        store.write_table(f"{UNITS}/{fresh[0].name}-{len(fresh)}.parquet", table)
