"""Parquet files with a checksum for each of their parts, and checks of their columns.

Parquet's own checksums cover pages, but neither the footer nor the pages' headers. A flipped bit there silently loses
rows, and Arrow's C++ code may crash on a damaged footer. So the footer's CRC-32 lies in front of it, where no reader
looks. It is compared before Arrow reads the footer. The rows read are counted against the footer.

    PAR1 | pages | "FKcrc32:" and the CRC-32 of the footer | footer | length of the footer | PAR1
"""

import struct
import zlib
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_OPTIONAL, _EXACT = b"framekiln.optional", b"framekiln.exact"


def exact(schema: pa.Schema) -> pa.Schema:
    """Return a schema for tables without other columns."""
    return schema.with_metadata({_EXACT: b""})


def optional(schema: pa.Schema, keys: Collection[str] = ()) -> pa.Schema:
    """Return a schema for tables that may lack columns other than the keys."""
    return pa.schema([item if item.name in keys else item.with_metadata({_OPTIONAL: b""}) for item in schema])


def check_types(schema: pa.Schema, expected: pa.Schema | None) -> None:
    """Check that a schema has columns with the expected types, among others; see `optional` and `exact`.

    Raises ArrowInvalid: a column is missing or of another type.
    """
    if expected is None:
        return
    if _EXACT in (expected.metadata or {}) and (other := set(schema.names) - set(expected.names)):
        raise pa.ArrowInvalid(f"columns {', '.join(sorted(other))} do not belong to such a table")
    for item in expected:
        place = schema.get_field_index(item.name)
        if place < 0 and _OPTIONAL in (item.metadata or {}):
            continue
        if place < 0 or schema.field(place).type != item.type:
            found = "absent" if place < 0 else f"of type {schema.field(place).type}"
            raise pa.ArrowInvalid(f"column {item.name} is {found}, not of type {item.type}")


def check_text(schema: pa.Schema) -> None:
    """Check that the metadata of a schema and its fields are text; pyarrow checks names itself.

    Raises UnicodeDecodeError: some are not.
    """
    for metadata in (schema.metadata, *(item.metadata for item in schema)):
        for key, value in (metadata or {}).items():
            key.decode(), value.decode()


_MARK = b"FKcrc32:"
_END = struct.Struct("<I4s")  # length of the footer, PAR1
_CHECKED = struct.Struct("<8sI")  # mark, CRC-32
_TAIL = 1 << 16  # bytes read at once from the end: Arrow's default; nearly all footers are shorter


def to_parquet(table: pa.Table) -> list[memoryview]:
    """Return a table as the bytes of a Parquet file (zstd), in consecutive parts."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    data = memoryview(sink.getvalue())
    start = len(data) - _END.size - _END.unpack(data[-_END.size :])[0]
    footer = data[start : -_END.size]
    return [data[:start], memoryview(_CHECKED.pack(_MARK, zlib.crc32(footer))), data[start:]]


class ParquetTable(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """An open Parquet file; rows are counted as they are read.

    Raises pa.ArrowInvalid: it is damaged. A file of another program has no checksum, and is trusted.
    """

    def __init__(self, source: pa.NativeFile) -> None:
        size = source.size()
        tail = source.read_at(min(size, _TAIL), max(0, size - _TAIL))
        if len(tail) < _END.size:
            raise pa.ArrowInvalid("it is too short to be a Parquet file")
        length, magic = _END.unpack(tail[-_END.size :])
        needed = length + _END.size + _CHECKED.size
        if magic == b"PAR1" and len(tail) < needed <= size:
            tail = source.read_at(needed, size - needed)
        _check_footer(tail, length)
        metadata = pq.read_metadata(pa.BufferReader(tail))
        super().__init__(source, metadata=metadata, page_checksum_verification=True)

    def read(self, *args: Any, **options: Any) -> pa.Table:
        table = super().read(*args, **options)
        self._check_rows(table.num_rows)
        _check_dictionaries(table)
        return table

    def iter_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """See `pq.ParquetFile.iter_batches`; all row groups are read."""
        rows = 0
        for batch in super().iter_batches(*args, **options):
            rows += batch.num_rows
            _check_dictionaries(batch)
            yield batch
        self._check_rows(rows)

    def _check_rows(self, rows: int) -> None:
        if rows != self.metadata.num_rows:
            raise pa.ArrowInvalid(f"{rows:,} of {self.metadata.num_rows:,} rows can be read")


def _check_dictionaries(rows: pa.Table | pa.RecordBatch) -> None:
    """Check that indices into Arrow's dictionaries are valid: a flipped bit may empty a dictionary."""
    if any(pa.types.is_dictionary(kind) for kind in rows.schema.types):
        rows.validate(full=True)


def _check_footer(tail: bytes, length: int) -> None:
    start = len(tail) - _END.size - length
    mark, crc = _CHECKED.unpack(tail[start - _CHECKED.size : start]) if start >= _CHECKED.size else (b"", 0)
    if mark == _MARK and zlib.crc32(tail[start : -_END.size]) == crc:
        return
    if _MARK in tail:
        raise pa.ArrowInvalid("the checksum of its footer does not match")
