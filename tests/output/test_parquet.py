"""A Parquet file with any flipped bit is refused, or read as it was written."""

from __future__ import annotations

import io
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from framekiln.output.object_store import Store
from framekiln.output.parquet import ParquetTable, to_parquet

TABLE = pa.table(
    {
        "media_id": [f"photo{i:03}.jpg" for i in range(40)],
        "score": [None if i % 7 == 0 else i / 3 for i in range(40)],
        "boxes": [[float(j) for j in range(i % 3)] for i in range(40)],
    }
)


NAMES = pa.table({"name": pa.array(["cat", "dog", "cat", "dog"] * 5).dictionary_encode()})


def content() -> bytes:
    return b"".join(to_parquet(TABLE))


def test_other_readers_read_it():
    assert pq.read_table(io.BytesIO(content())).equals(TABLE)


def test_a_file_of_another_program_is_read(tmp_path):
    pq.write_table(TABLE, tmp_path / "foreign.parquet")
    assert Store(str(tmp_path)).read_table("foreign.parquet").equals(TABLE)


def test_a_footer_longer_than_the_first_read_is_checked():
    wide = pa.table({f"column {i:05} with a long name": [1] for i in range(2_000)})
    data = bytearray(b"".join(to_parquet(wide)))
    assert ParquetTable(pa.BufferReader(bytes(data))).read().equals(wide)
    data[-50_000] ^= 1
    with pytest.raises(pa.ArrowInvalid, match="footer"):
        ParquetTable(pa.BufferReader(bytes(data)))


@pytest.mark.parametrize("size", [0, 3, 8, 11, 40])
def test_a_file_that_was_cut_is_refused(size, tmp_path):
    with pytest.raises((pa.ArrowInvalid, OSError)):
        ParquetTable(pa.BufferReader(content()[:size]))


FLIP = """
import faulthandler, sys, pyarrow as pa
from framekiln.output.parquet import ParquetTable
from framekiln.output.parquet import to_parquet
from tests.output import test_parquet
faulthandler.enable()
table_written = getattr(test_parquet, sys.argv[1])
data, wrong = bytearray(b"".join(to_parquet(table_written))), []
for bit in range(len(data) * 8):
    data[bit // 8] ^= 1 << bit % 8
    try:
        for read in (lambda file: file.read(), lambda file: pa.Table.from_batches(file.iter_batches(7))):
            table = read(ParquetTable(pa.BufferReader(bytes(data))))
            if not table.equals(table_written):
                wrong.append(bit)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        pass
    data[bit // 8] ^= 1 << bit % 8
sys.exit(f"other rows with bits {wrong}" if wrong else 0)
"""


@pytest.mark.parametrize("table", ["TABLE", "NAMES"])
def test_no_flipped_bit_gives_other_rows_or_ends_the_process(table):
    done = subprocess.run([sys.executable, "-c", FLIP, table], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
