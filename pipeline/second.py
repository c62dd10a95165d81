"""The second pass: from the parts of the first to tables of whole videos and whole runs, and to what people query.

Everything here reads derived columns, and tables made of them before, so it takes seconds where the first pass takes
hours. Each table lies in the output as one file for each unit, named by unit and fingerprint: what is there is done,
and what no longer belongs is swept at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns import SOURCE
from pipeline.failure import SCHEMA as FAILURES
from pipeline.journal import Journal
from pipeline.ledger import COLUMNS, Ledger, Part
from pipeline.media.names import escape
from pipeline.media.store import Media
from pipeline.media.units import Unit
from pipeline.plan import Plan
from pipeline.sample import Report
from pipeline.stage import Placement
from pipeline.step import fingerprint
from pipeline.storage import Store

FRAMES, ERRORS = "frames", "errors"


@dataclass(frozen=True, kw_only=True)
class UnitRows:
    """All rows of a unit, wherever their columns lie."""

    unit: str
    parts: Mapping[str, tuple[Part, ...]]  # by step folder
    media: frozenset[str] | None = None  # the files that were asked for; None: all of the unit
    files: tuple[Media, ...] = ()  # all of the unit

    def read(self, store: Store, columns: Mapping[str, Sequence[str]]) -> pa.Table:
        """Columns by step folder, side by side, in the unit's order.

        `columns` includes the decoder's folder with media_id. Without columns where no file of the unit gave a frame.
        """
        pieces = []
        for folder, names in columns.items():
            parts = [store.read_table(f"{COLUMNS}/{folder}/{part.name}", names) for part in self.parts[folder]]
            pieces.append(pa.concat_tables(parts) if parts else None)
        found = [piece for piece in pieces if piece is not None]
        if not found:
            return pa.table({})
        fields = [item for piece in found for item in piece.schema]
        table = pa.table([piece[name] for piece in found for name in piece.column_names], schema=pa.schema(fields))
        if self.media is not None:
            table = table.filter(pc.is_in(table["media_id"], pa.array(sorted(self.media), pa.string())))
        return table

    def failures(self, store: Store, folder: str, empty_too: bool = False) -> pa.Table:
        """What a step wrote down as failed."""
        known = set(self.parts[folder])
        if empty_too:
            total = max((part.stop for part in known), default=0)
            known.add(Part(self.unit, total, total))
        paths = [f"{COLUMNS}/{folder}/{part.errors_name}" for part in sorted(known)]
        tables = [store.read_table(path) for path in paths if store.exists(path)]
        table = pa.concat_tables([*tables, FAILURES.empty_table()])
        if self.media is not None:
            table = table.filter(pc.is_in(table["media_id"], pa.array(sorted(self.media), pa.string())))
        return table

    @property
    def inputs(self) -> dict[str, str]:
        """By media_id, where each file lies, fit for a table."""
        return {media.media_id: escape(media.path) for media in self.files}

    def tag(self, *facts: object) -> str:
        """The name of what is made of these rows by a rule with the given facts."""
        chosen = None if self.media is None else sorted(self.media)
        return f"{self.unit}-{fingerprint({'facts': facts, 'media': chosen})}.parquet"


def unit_rows(plan: Plan, ledger: Ledger, units: Sequence[Unit], wanted: frozenset[str]) -> list[UnitRows]:
    """Units that every first-pass step is done with, in their order."""
    result = []
    for unit in units:
        found = {folder: ledger.parts(folder, plan.decode.folder, unit.name) for folder in plan.first_folders}
        if all(parts is not None for parts in found.values()):
            names = frozenset(media.media_id for media in unit.media)
            parts = {folder: tuple(parts or ()) for folder, parts in found.items()}
            own = (names & wanted) - unit.superseded
            chosen = None if own == names else own
            result.append(UnitRows(unit=unit.name, parts=parts, media=chosen, files=unit.media))
    return result


class SecondPass(Protocol):
    """Work of the second pass: called once for each piece, in some process."""

    name: str
    cpus: float
    over_all: bool  # whether one piece is made of all units
    processes: Placement | None  # what those that keep its model ask for; None: it has none, and runs in tasks

    def set_up(self) -> None:
        """Make ready what all pieces in this process share; once, however often it is called."""

    def pieces(self, units: Sequence[UnitRows]) -> list[tuple[UnitRows, ...]]:
        """What is still to do."""

    def live(self, units: Sequence[UnitRows]) -> dict[str, set[str]]:
        """By table, the names of the files that belong to these units."""

    def __call__(self, piece: tuple[UnitRows, ...], report: Report, journal: Journal) -> None:
        """Do one piece."""


def columns_of(plan: Plan, names: Sequence[str]) -> dict[str, list[str]]:
    """By step folder, which of the named columns lie there; the decoder's first."""
    wanted = list(dict.fromkeys(names))
    found = {plan.decode.folder: [name for name in wanted if name in SOURCE.names]}
    for step in plan.first:
        if inside := [name for name in wanted if name in step.stage.outputs.names]:
            found[step.folder] = inside
    return found
