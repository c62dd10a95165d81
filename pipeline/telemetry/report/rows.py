"""Rows of an output's tables in bounded memory: a report must not need a larger machine than the run did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.storage import Store

MOST_ROWS = 200_000  # a histogram of so many differs from the whole by less than a bar's height is drawn to
MOST_FILES = 400  # in a bucket, opening one takes a tenth of a second
_BATCH = 16_384  # rows decoded at a time
_LONGEST = 120  # characters kept of a text


@dataclass(frozen=True, kw_only=True)
class Folder:
    """The Parquet files of one table, all of one schema."""

    name: str
    files: tuple[str, ...]  # paths in the store, sorted
    counts: tuple[int, ...]  # rows of each

    @property
    def rows(self) -> int:
        """Rows of the whole table."""
        return sum(self.counts)


@dataclass(frozen=True, kw_only=True)
class Extract:
    """Some or all rows of a table: numbers, texts and truth values as they are, lists as their lengths."""

    schema: pa.Schema  # of the table
    columns: dict[str, pa.ChunkedArray]  # those of its columns that have such a form
    taken: int  # rows
    whole: bool  # these are all rows


def look(store: Store, name: str) -> Folder:
    """What there is of a table; without files when there is none."""
    files = tuple(f"{name}/{item}" for item in store.names(name) if item.endswith(".parquet"))
    return Folder(name=name, files=files, counts=tuple(store.count_rows(path) for path in files))


def spread(count: int, most: int) -> list[int]:
    """At most `most` of the numbers 0 to `count`, evenly spaced."""
    return [int((i + 0.5) * count / most) for i in range(most)] if count > most else list(range(count))


def batches(
    store: Store, path: str, columns: Sequence[str] | None = None, rows: int = _BATCH
) -> Iterator[pa.RecordBatch]:
    """A file's rows, some at a time; a column may be named by the path of a leaf in it."""
    with store.open(path) as source:
        yield from pq.ParquetFile(source).iter_batches(rows, columns=None if columns is None else list(columns))


def extract(store: Store, folder: Folder, most_rows: int = MOST_ROWS, most_files: int = MOST_FILES) -> Extract:
    """Every n-th row of evenly spaced files, as many as the limits allow."""
    chosen = spread(len(folder.files), most_files)
    every = max(1, -(-sum(folder.counts[i] for i in chosen) // most_rows))
    schema, leaves = _readable(store, folder.files[0]) if folder.files else (pa.schema([]), {})
    found: dict[str, list[pa.Array]] = {name: [] for name in leaves}
    seen = taken = 0
    for path in (folder.files[i] for i in chosen):
        for batch in batches(store, path, list(leaves.values())) if leaves else ():
            wanted = np.arange(-seen % every, batch.num_rows, every)
            seen, taken = seen + batch.num_rows, taken + len(wanted)
            picked = batch if every == 1 else batch.take(pa.array(wanted))
            for name in leaves:
                found[name].append(_plain(picked[name]))
    columns = {
        name: pa.chunked_array(parts, type=_plain_type(schema.field(name).type)) for name, parts in found.items()
    }
    return Extract(schema=schema, columns=columns, taken=taken, whole=taken == folder.rows)


def head(store: Store, folder: Folder, count: int) -> pa.Table | None:
    """The first rows of a table; None when it has no file."""
    parts: list[pa.RecordBatch] = []
    for path in folder.files:
        for batch in batches(store, path, rows=count):
            parts.append(batch)
            break
        if sum(part.num_rows for part in parts) >= count:
            break
    return pa.Table.from_batches(parts).slice(0, count) if parts else None


def leaves_of(store: Store, path: str) -> dict[str, str]:
    """By column of a file what to read of it to see its values, or of a list its length."""
    return _readable(store, path)[1]


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type have an order and a distance."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a type are strings, dictionary-encoded or not."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))


def is_list(kind: pa.DataType) -> bool:
    """Whether values of a type are lists whose length varies."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _readable(store: Store, path: str) -> tuple[pa.Schema, dict[str, str]]:
    """The schema, and by column what to read for it: of a list of anything, its smallest leaf."""
    with store.open(path) as source:
        file = pq.ParquetFile(source)
        schema, leaves = file.schema_arrow, {}
        sizes = _leaf_sizes(file)
        for item in schema:
            if is_list(item.type):
                inside = [leaf for leaf in sizes if leaf.startswith(f"{item.name}.")]
                leaves[item.name] = min(inside, key=lambda leaf: sizes[leaf])
            elif is_number(item.type) or is_text(item.type) or pa.types.is_boolean(item.type):
                leaves[item.name] = item.name
    return schema, leaves


def _leaf_sizes(file: pq.ParquetFile) -> dict[str, int]:
    """Bytes of each leaf column in the first row group, by its path."""
    meta = file.metadata
    if not meta.num_row_groups:
        return {file.schema.column(i).path: 0 for i in range(len(file.schema))}
    group = meta.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return {chunk.path_in_schema: chunk.total_compressed_size for chunk in chunks}


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if is_list(kind):
        return pa.int64()
    if is_text(kind):
        return pa.string()
    return pa.float64() if pa.types.is_decimal(kind) or pa.types.is_float16(kind) else kind


def _plain(column: pa.Array) -> pa.Array:
    if is_list(column.type):
        return pc.list_value_length(column).cast(pa.int64())
    if is_text(column.type):
        return pc.utf8_slice_codeunits(column.cast(pa.string()), 0, _LONGEST)
    return column.cast(_plain_type(column.type))
