"""The parts of an output, for a worker: one step's results for one packet, written by the process that made them.

A part is a step's columns, its failures, encoded files beside them, and the rows that a condition left out.
"""

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.columns import KEYS, SOURCE
from framekiln.contract.errors import DamagedError
from framekiln.contract.output_names import COLUMNS, IMAGES
from framekiln.contract.packet import HALO, Packet
from framekiln.contract.row_errors import SCHEMA, Failure, to_table
from framekiln.contract.stage import Scope
from framekiln.media.media_ids import as_folder
from framekiln.output.ledger import MARKS, Ledger, Part
from framekiln.output.object_store import Store
from framekiln.planning.step import DecodeStep, Step, is_file_column
from framekiln.runtime.step_results import Outcome, clip_bounds

UNCHOSEN = b"framekiln.unchosen"
"""Metadata key of a part for the rows that a condition leaves out: a bit a row, in base64."""


@dataclass(frozen=True)
class KnownRows:
    """Values of some rows of a packet, computed by a run with another condition."""

    columns: pa.Table  # columns of parts, a row for each row of the packet without halo
    taken: NDArray[np.bool_]  # true for rows that are known


class Parts:
    """The parts of an output, for a worker."""

    def __init__(self, store: Store) -> None:
        self._store, self._ledger = store, Ledger(store)

    def done(self, step: Step, part: Part) -> bool:
        """Return whether a part exists, with no row to retry."""
        return self._has_file(step, part.name) and not self._has_file(step, part.retry_name)

    def retried_rows(self, step: Step, packet: Packet) -> NDArray[np.bool_] | None:
        """Return n bools, true for a packet's rows to retry; None if the whole part is missing.

        A clip is computed as a whole: if one of its rows is retried, all are.
        """
        part = part_of(packet)
        if not (self._has_file(step, part.retry_name) and self._has_file(step, part.name)):
            return None
        marks = self._store.read_table(_make_path(step, part.retry_name), expected=MARKS)
        chosen = _find_keys(packet.rows, _list_keys(marks)) & ~packet.rows[HALO].to_numpy()
        if step.stage.scope is Scope.CLIP:
            for start, stop in clip_bounds(packet.rows):
                chosen[start:stop] |= chosen[start:stop].any()
        return chosen

    def read_decoded(self, step: DecodeStep, part: Part) -> tuple[pa.Table, set[str]]:
        """Return the rows of decoding's part of a packet, or of a unit's end, and the files with errors."""
        rows = self._store.read_table(_make_path(step, part.name), SOURCE.names, expected=SOURCE)
        return rows, {row.media_id for row in self._read_failures(step, part)}

    def read(self, step: Step, part: Part) -> Outcome | None:
        """Read the columns of a packet's rows that later steps read, with files' content, and their failures.

        Return None if there is no such part. For a recalled step, any parts with these rows will do.
        """
        if (rows := self._read_rows(step, part, step.carried)) is None:
            return None
        table = rows.columns
        for position, name in enumerate(step.carried):
            if is_file_column(item := step.stage.outputs.field(name)):
                data = [None if path is None else self._read_content(path) for path in table[name].to_pylist()]
                table = table.set_column(position, item, pa.array(data, item.type))
        return replace(rows, columns=table)

    def _read_rows(self, step: Step, part: Part, names: Sequence[str]) -> Outcome | None:
        """Read columns of a packet's rows, for a recalled step from any parts; None if some rows are missing.

        Packets are cut by the pixels that all steps request, so a run of other steps may have cut them otherwise.
        """
        tables: list[pa.Table] = []
        masks: list[NDArray[np.bool_]] = []
        failures: list[Failure] = []
        reached = part.start
        is_there = self.done(step, part)
        while not tables or reached < part.stop:
            if (found := part if is_there else self._find_part(step, part.unit, reached)) is None:
                return None
            table = self._store.read_table(_make_path(step, found.name), names, expected=step.table_schema)
            own = slice(reached - found.start, min(found.stop, part.stop) - found.start)
            tables.append(table[own].replace_schema_metadata(None))
            if (mask := read_unchosen(table.schema, table.num_rows)) is not None:
                masks.append(mask[own])
            failures += self._read_failures(step, found)
            reached = found.start + own.stop
        return Outcome(pa.concat_tables(tables), failures, np.concatenate(masks) if masks else None)

    def _find_part(self, step: Step, unit: str, row: int) -> Part | None:
        if not step.recalled:
            return None
        spans = (span for span in self._ledger.spans(step.folder).get(unit, ()) if span[0] <= row < span[1])
        longest = max(spans, key=lambda span: span[1], default=None)
        return None if longest is None else Part(unit, *longest)

    def _read_content(self, path: str) -> bytes:
        try:
            return self._store.read(path)
        except (FileNotFoundError, ValueError) as error:  # the latter: a path outside the output
            message = f"{self._store.url(path)!r} is gone; `framekiln run` with the same options as before replaces it."
            raise DamagedError(message, code="FK-OUTPUT-DAMAGED") from error

    def find_known(self, step: Step, packet: Packet, wanted: NDArray[np.bool_]) -> KnownRows | None:
        """Return values that runs with other conditions computed; None if no wanted row is among them.

        `wanted`: n bools, without halo rows.

        Rows that failed there are computed again. A clip's values depend on which of its rows are computed. So a clip
        is reused as a whole, and only if that run computed the same rows of it.
        """
        part, known = part_of(packet), KnownRows(pa.table({}), np.zeros(len(wanted), bool))
        for name in step.others:
            other = replace(step, fingerprint=name.rpartition("-")[2], recalled=True)
            if known.taken[wanted].all() or (rows := self._read_rows(other, part, step.table_schema.names)) is None:
                continue
            failed = {(row.media_id, row.frame_index) for row in rows.failures}
            own = packet.rows.filter(pc.invert(packet.rows[HALO]))
            whole = ~_find_keys(own, failed)
            there = whole & (True if rows.unchosen is None else ~rows.unchosen)
            if step.stage.scope is Scope.CLIP:
                whole &= there == wanted
                for start, stop in clip_bounds(own):
                    there[start:stop] &= whole[start:stop].all()
            there &= wanted & ~known.taken
            columns = rows.columns.cast(step.table_schema)
            known = KnownRows(_choose_rows(known.columns, columns, there), known.taken | there)
        return known if known.taken.any() else None

    def write(self, step: Step, packet: Packet, outcome: Outcome, known: KnownRows | None = None) -> None:
        """Write a part. Columns are written last: their existence marks the part as complete."""
        columns = self._write_files(step, packet, outcome.columns)
        if known is not None:
            columns = _choose_rows(columns, known.columns, known.taken)
        self.put(step.folder, part_of(packet), step.mark(columns), outcome.failures, outcome.unchosen)

    def amend(self, step: Step, packet: Packet, outcome: Outcome, retried: NDArray[np.bool_]) -> None:
        """Write a part with its retried rows replaced; other rows and their failures stay."""
        part, own = part_of(packet), retried[~packet.rows[HALO].to_numpy()]
        before = self._store.read_table(_make_path(step, part.name), expected=step.table_schema)
        table = _choose_rows(before.cast(step.table_schema), self._write_files(step, packet, outcome.columns), own)
        unchosen, earlier = outcome.unchosen, read_unchosen(before.schema, before.num_rows)
        if unchosen is not None and earlier is not None:
            unchosen = np.where(own, unchosen, earlier)
        replaced = _list_keys(packet.rows.filter(pa.array(retried & ~packet.rows[HALO].to_numpy())))
        kept = [old for old in self._read_failures(step, part) if (old.media_id, old.frame_index) not in replaced]
        if not (failures := [*kept, *outcome.failures]):
            self._store.remove(_make_path(step, part.errors_name))
        self.put(step.folder, part, step.mark(table), failures, unchosen)
        self._store.remove(_make_path(step, part.retry_name))

    def put(
        self,
        folder: str,
        part: Part,
        columns: pa.Table,
        failures: Sequence[Failure],
        unchosen: NDArray[np.bool_] | None = None,
    ) -> None:
        """Write a part's columns, its failures, and which rows were skipped."""
        if unchosen is not None:
            bits = base64.b64encode(np.packbits(unchosen).tobytes())
            columns = columns.replace_schema_metadata({**(columns.schema.metadata or {}), UNCHOSEN: bits})
        if failures:
            self._store.write_table(f"{COLUMNS}/{folder}/{part.errors_name}", to_table(failures))
        self._store.write_table(f"{COLUMNS}/{folder}/{part.name}", columns)

    def _has_file(self, step: Step | DecodeStep, name: str) -> bool:
        return self._store.exists(_make_path(step, name))

    def _read_failures(self, step: Step | DecodeStep, part: Part) -> list[Failure]:
        path = _make_path(step, part.errors_name)
        if not self._store.exists(path):
            return []
        return [Failure(**row) for row in self._store.read_table(path, SCHEMA.names, expected=SCHEMA).to_pylist()]

    def _write_files(self, step: Step, packet: Packet, columns: pa.Table) -> pa.Table:
        """Write encoded files beside the tables, and return the columns with paths in place of content."""
        if not any(is_file_column(item) for item in step.stage.outputs):
            return columns
        own = packet.rows.select(KEYS).filter(pc.invert(packet.rows[HALO])).to_pylist()
        arrays = []
        for item in step.stage.outputs:
            if not is_file_column(item):
                arrays.append(columns[item.name])
                continue
            folder = f"{IMAGES}/{step.images(item.name)}"
            values = zip(own, columns[item.name].to_pylist(), strict=True)
            arrays.append(pa.array([self._put_file(folder, key, data) for key, data in values], pa.string()))
        return pa.table(arrays, schema=step.table_schema)

    def _put_file(self, folder: str, key: dict[str, Any], data: bytes | None) -> str | None:
        if data is None:
            return None
        signatures = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"RIFF": ".webp"}
        suffix = next((end for start, end in signatures.items() if data.startswith(start)), ".bin")
        path = f"{folder}/{as_folder(key['media_id'])}/{key['frame_index']:08d}{suffix}"
        self._store.write(path, data)
        return path


def read_unchosen(schema: pa.Schema, rows: int) -> NDArray[np.bool_] | None:
    """Return which rows (n) of a part a condition left out; None without a condition."""
    bits = (schema.metadata or {}).get(UNCHOSEN)
    if bits is None:
        return None
    packed = np.frombuffer(base64.b64decode(bits), np.uint8)
    return np.unpackbits(packed, count=rows).astype(bool)


def _choose_rows(table: pa.Table, other: pa.Table, from_other: NDArray[np.bool_]) -> pa.Table:
    """Return a table with some rows (n bools) taken from another table; an empty one stands for nulls."""
    if not table.num_columns:
        return other.take(pa.array(np.arange(len(from_other)), mask=~from_other))
    both = pa.concat_tables([table, other])
    return both.take(pa.array(np.arange(len(from_other)) + len(from_other) * from_other))


def _list_keys(rows: pa.Table) -> set[tuple[Any, Any]]:
    return set(zip(*(rows[key].to_pylist() for key in KEYS), strict=True))


def _find_keys(rows: pa.Table, keys: Collection[tuple[Any, Any]]) -> NDArray[np.bool_]:
    return np.array([key in keys for key in zip(*(rows[key].to_pylist() for key in KEYS), strict=True)], bool)


def part_of(packet: Packet) -> Part:
    """Return the name of a step's part for a packet."""
    return Part(packet.unit, packet.start, packet.stop)


def _make_path(step: Step | DecodeStep, name: str) -> str:
    return f"{COLUMNS}/{step.folder}/{name}"
