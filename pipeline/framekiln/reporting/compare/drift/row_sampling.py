"""A sample of the rows of a table in two outputs, the same rows on both sides, in bounded memory."""

import math
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.output.object_store import Store
from framekiln.reporting.table_rows import TableFiles, batches, find_table

MOST_BYTES = 256_000_000  # in memory, of the columns of one step on each side
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: Knuth's multiplicative hashing


@dataclass(frozen=True, kw_only=True)
class OutputRows:
    """One output, without the media files that cannot be compared."""

    store: Store
    left_out: Collection[str] = field(default_factory=frozenset)


def sample(
    sides: tuple[OutputRows, OutputRows], name: str, keys: Sequence[str], columns: Sequence[str], most: int
) -> tuple[tuple[pa.Table, pa.Table], int, int]:
    """Read about `most` rows of a table on both sides, fewer where they are large.

    Returns:
        The rows of each side; n, where every n-th row was read; the rows of both tables together.
    """
    tables = [find_table(side.store, name) for side in sides]
    every = max(_choose_every(side.store, table, columns, most) for side, table in zip(sides, tables, strict=True))
    first, second = (_take_rows(side, table, keys, columns, every) for side, table in zip(sides, tables, strict=True))
    return (first, second), every, sum(table.rows for table in tables)


def _choose_every(store: Store, table: TableFiles, columns: Sequence[str], most: int) -> int:
    if not table.rows:
        return 1
    with store.parquet(table.files[0]) as file:
        meta = file.metadata
    groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)
    each = size / meta.num_rows if meta.num_rows else 0
    return max(1, math.ceil(table.rows / most), math.ceil(table.rows * each / MOST_BYTES))


def _take_rows(
    side: OutputRows, table: TableFiles, keys: Sequence[str], columns: Sequence[str], every: int
) -> pa.Table:
    left_out = pa.array(sorted(side.left_out), pa.string())
    parts: list[pa.RecordBatch] = []
    for path in table.files:
        with side.store.parquet(path) as file:
            present = set(file.schema_arrow.names)
        if not set(keys) <= present:
            continue
        for batch in batches(side.store, path, [*keys, *(name for name in columns if name in present)]):
            mask = _choose_rows([batch[key] for key in keys], every)
            if len(left_out) and "media_id" in keys:
                mask &= ~pc.is_in(batch["media_id"], left_out).to_numpy(zero_copy_only=False)
            if mask.any():
                parts.append(batch.filter(pa.array(mask)))
    if not parts:
        return pa.table({})
    return pa.concat_tables([pa.Table.from_batches([part]) for part in parts], promote_options="permissive")


def _choose_rows(keys: Sequence[pa.Array], every: int) -> NDArray[np.bool_]:
    mixed = np.zeros(len(keys[0]), np.uint64)
    for column in keys:
        mixed = (mixed ^ _hash(column)) * _MIX
        mixed ^= mixed >> np.uint64(32)
    return mixed % np.uint64(every) == 0


def _hash(column: pa.Array) -> NDArray[np.uint64]:
    coded = column.dictionary_encode()
    names = np.array([zlib.crc32(str(value).encode()) for value in coded.dictionary.to_pylist()] or [0], np.uint64)
    places = pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False)
    return names[places]


def common(sides: tuple[pa.Table, pa.Table], keys: Sequence[str]) -> tuple[pa.Table, pa.Table, tuple[int, int]]:
    """Return the rows that both tables have, in one order, and how many rows only one of them has."""
    a, b = sides
    if not (len(a) and len(b)):
        return a.slice(0, 0), b.slice(0, 0), (len(a), len(b))
    places = [
        {key: i for i, key in enumerate(zip(*(table[k].to_pylist() for k in keys), strict=True))} for table in sides
    ]
    both = [key for key in places[0] if key in places[1]]
    first, second = (
        table.take(pa.array([at[key] for key in both], pa.int64())) for table, at in zip(sides, places, strict=True)
    )
    return first, second, (len(places[0]) - len(both), len(places[1]) - len(both))
