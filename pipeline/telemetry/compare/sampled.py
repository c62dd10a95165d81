"""Some rows of a table in two outputs, the same on both sides, in bounded memory."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.storage import Store
from pipeline.telemetry.report.rows import Folder, batches, look

MOST_BYTES = 256_000_000  # of the columns of one step, on each side, as they lie in memory
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio: Knuth's multiplicative hashing


@dataclass(frozen=True, kw_only=True)
class Side:
    """One output, and files whose rows cannot be compared."""

    store: Store
    left_out: Collection[str] = field(default_factory=frozenset)


def sample(
    sides: tuple[Side, Side], name: str, keys: Sequence[str], columns: Sequence[str], most: int
) -> tuple[tuple[pa.Table, pa.Table], int, int]:
    """About `most` rows of a table on both sides, fewer where they are large; one in how many that is; rows in all."""
    folders = [look(side.store, name) for side in sides]
    every = max(_every(side.store, folder, columns, most) for side, folder in zip(sides, folders, strict=True))
    first, second = (_rows(side, folder, keys, columns, every) for side, folder in zip(sides, folders, strict=True))
    return (first, second), every, sum(folder.rows for folder in folders)


def _every(store: Store, folder: Folder, columns: Sequence[str], most: int) -> int:
    if not folder.rows:
        return 1
    with store.open(folder.files[0]) as source:
        meta = pq.ParquetFile(source).metadata
    groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    size = sum(one.total_uncompressed_size for one in chunks if one.path_in_schema.split(".")[0] in columns)
    each = size / meta.num_rows if meta.num_rows else 0
    return max(1, math.ceil(folder.rows / most), math.ceil(folder.rows * each / MOST_BYTES))


def _rows(side: Side, folder: Folder, keys: Sequence[str], columns: Sequence[str], every: int) -> pa.Table:
    left_out = pa.array(sorted(side.left_out), pa.string())
    found: list[pa.RecordBatch] = []
    for path in folder.files:
        there = _names(side.store, path)
        if not set(keys) <= there:
            continue
        for batch in batches(side.store, path, [*keys, *(one for one in columns if one in there)]):
            wanted = _chosen([batch[key] for key in keys], every)
            if len(left_out) and "media_id" in keys:
                wanted &= ~pc.is_in(batch["media_id"], left_out).to_numpy(zero_copy_only=False)
            if wanted.any():
                found.append(batch.filter(pa.array(wanted)))
    if not found:
        return pa.table({})
    return pa.concat_tables([pa.Table.from_batches([one]) for one in found], promote_options="permissive")


def _names(store: Store, path: str) -> set[str]:
    with store.open(path) as source:
        return set(pq.ParquetFile(source).schema_arrow.names)


def _chosen(keys: Sequence[pa.Array], every: int) -> NDArray[np.bool_]:
    """Rows whose keys have a hash that is a multiple of `every`."""
    mixed = np.zeros(len(keys[0]), np.uint64)
    for column in keys:
        mixed = (mixed ^ _number(column)) * _MIX
        mixed ^= mixed >> np.uint64(32)
    return mixed % np.uint64(every) == 0


def _number(column: pa.Array) -> NDArray[np.uint64]:
    coded = column.dictionary_encode()
    names = np.array([zlib.crc32(str(one).encode()) for one in coded.dictionary.to_pylist()] or [0], np.uint64)
    places = pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False)
    return names[places]


def common(sides: tuple[pa.Table, pa.Table], keys: Sequence[str]) -> tuple[pa.Table, pa.Table, tuple[int, int]]:
    """Rows of both in one order, and how many only one of them has."""
    a, b = sides
    if not (len(a) and len(b)):
        return a.slice(0, 0), b.slice(0, 0), (len(a), len(b))
    places = [{key: i for i, key in enumerate(zip(*(one[k].to_pylist() for k in keys), strict=True))} for one in sides]
    both = [key for key in places[0] if key in places[1]]
    first, second = (
        one.take(pa.array([at[key] for key in both], pa.int64())) for one, at in zip(sides, places, strict=True)
    )
    return first, second, (len(places[0]) - len(both), len(places[1]) - len(both))
