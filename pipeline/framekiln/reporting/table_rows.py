"""Sampled rows of an output's tables, so that memory stays bounded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.output.kept_tables import MOST_FILES, spread
from framekiln.output.object_store import Store
from framekiln.output.parquet import check_types

MOST_ROWS = 200_000  # a histogram of this many looks like that of all rows
_BATCH = 16_384  # rows decoded at a time
_LONGEST = 120  # most characters kept of a text


@dataclass(frozen=True, kw_only=True)
class TableFiles:
    """The Parquet files of one table, all of one schema."""

    name: str
    files: tuple[str, ...]  # paths in the store, sorted
    counts: tuple[int, ...]  # rows of each

    @property
    def rows(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, kw_only=True)
class Extract:
    """Some or all rows of a table: numbers, texts and booleans unchanged, lists as their lengths."""

    schema: pa.Schema  # of the table
    columns: dict[str, pa.ChunkedArray]  # columns of other types are missing
    taken: int  # rows
    whole: bool  # these are all rows


def find_table(store: Store, name: str, expected: pa.Schema | None = None) -> TableFiles:
    """Return the files of a table; empty without any.

    Raises DamagedError: a file lacks an expected column, or is unreadable.
    """
    files = tuple(f"{name}/{item}" for item in store.names(name) if item.endswith(".parquet"))
    return TableFiles(name=name, files=files, counts=tuple(store.count_rows(path, expected) for path in files))


def batches(
    store: Store, path: str, columns: Sequence[str] | None = None, rows: int = _BATCH, expected: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in batches; a column may be the path of a leaf, as in `poses.list.element.score`.

    Raises DamagedError: the file lacks an expected column, or is unreadable.
    """
    with store.parquet(path) as file:
        check_types(file.schema_arrow, expected)
        yield from file.iter_batches(rows, columns=None if columns is None else list(columns))


def extract(store: Store, table: TableFiles, most_rows: int = MOST_ROWS, most_files: int = MOST_FILES) -> Extract:
    """Return every n-th row of evenly spaced files, as many as the limits allow."""
    first = spread(table.files, most_files)[:1]  # a sampled file, which is open
    schema, leaves = readable(store, first[0]) if first else (pa.schema([]), {})
    kinds = {name: schema.field(name).type for name in leaves}
    for name, kind in kinds.items():
        if is_list(kind) or is_text(kind):
            kinds[name] = pa.int64() if is_list(kind) else pa.string()
        elif pa.types.is_decimal(kind) or pa.types.is_float16(kind):
            kinds[name] = pa.float64()
    parts: dict[str, list[pa.Array]] = {name: [] for name in leaves}
    taken = 0
    for rows in _read_spaced(store, table, list(leaves.values()), schema, most_rows, most_files) if leaves else ():
        taken += rows.num_rows
        for name, kind in kinds.items():
            column = rows[name]
            if is_list(column.type):
                column = pc.list_value_length(column)
            elif is_text(column.type):
                column = pc.utf8_slice_codeunits(column.cast(pa.string()), 0, _LONGEST)
            parts[name].append(column.cast(kind))
    columns = {name: pa.chunked_array(arrays, type=kinds[name]) for name, arrays in parts.items()}
    return Extract(schema=schema, columns=columns, taken=taken, whole=taken == table.rows)


def sample(store: Store, table: TableFiles, columns: Sequence[str]) -> tuple[pa.Table, float]:
    """Return whole values of the rows that `extract` takes, and the table's rows behind each of them."""
    parts = list(_read_spaced(store, table, columns))
    rows = pa.Table.from_batches(parts) if parts else pa.table({})
    return rows, table.rows / max(1, len(rows))


def _read_spaced(
    store: Store,
    table: TableFiles,
    columns: Sequence[str],
    schema: pa.Schema | None = None,
    most_rows: int = MOST_ROWS,
    most_files: int = MOST_FILES,
) -> Iterator[pa.RecordBatch]:
    """Yield every n-th row of evenly spaced files, the first one included."""
    chosen = spread(list(zip(table.files, table.counts, strict=True)), most_files)
    every, read = max(1, -(-sum(rows for _, rows in chosen) // most_rows)), 0
    for path, _ in chosen:
        for batch in batches(store, path, columns, expected=schema):
            places = np.arange(-read % every, batch.num_rows, every)
            read += batch.num_rows
            yield batch if every == 1 else batch.take(pa.array(places))


def head(store: Store, table: TableFiles, count: int) -> pa.Table:
    """Return the first rows of a table with its first file's columns; an empty table without a file."""
    parts: list[pa.Table] = []
    for path in table.files:
        for batch in batches(store, path, rows=count, expected=parts[0].schema if parts else None):
            part = pa.Table.from_batches([batch])
            parts.append(part.select(parts[0].column_names) if parts else part)  # a foreign file may have other columns
            break
        if sum(part.num_rows for part in parts) >= count:
            break
    return pa.concat_tables(parts, promote_options="default").slice(0, count) if parts else pa.table({})


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are strings, dictionary-encoded or not."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))


def is_list(kind: pa.DataType) -> bool:
    """Return whether values of a type are lists of variable length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def is_scalar(kind: pa.DataType) -> bool:
    """Return whether values of a type are numbers, strings or booleans."""
    return bool(is_number(kind) or is_text(kind) or pa.types.is_boolean(kind))


def readable(store: Store, path: str) -> tuple[pa.Schema, dict[str, str]]:
    """Return a file's schema, and for each column the leaf to read: for a list its smallest, for the lengths."""
    with store.parquet(path) as file:
        schema, leaves = file.schema_arrow, {}
        sizes = {file.schema.column(i).path: 0 for i in range(len(file.schema))}
        if file.metadata.num_row_groups:
            group = file.metadata.row_group(0)
            chunks = map(group.column, range(group.num_columns))
            sizes = {chunk.path_in_schema: chunk.total_compressed_size for chunk in chunks}
        for item in schema:
            if is_list(item.type):
                inside = [leaf for leaf in sizes if leaf.startswith(f"{item.name}.")]
                if not inside:  # the schemas of Arrow and of Parquet differ
                    raise pa.ArrowInvalid(f"column {item.name} has no values")
                leaves[item.name] = min(inside, key=lambda leaf: sizes[leaf])
            elif is_scalar(item.type):
                leaves[item.name] = item.name
    return schema, leaves
