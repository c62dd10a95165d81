"""Shows the tables of an output in pandas, Polars and DuckDB, of an output that is named or of three photos.

It needs `pip install pandas polars duckdb`.
"""

import sys

import duckdb
import polars as pl

import framekiln
from framekiln.media.samples import photos

if len(sys.argv) > 1:
    output = framekiln.open(sys.argv[1])
else:
    output = framekiln.run(list(photos().values()), "out/tables", stages=["lighting"])

frames = output.table("frames")  # a pyarrow.dataset.Dataset: nothing is read yet
columns = ["media_id", "exposure", "width", "height"]
print(frames.to_table(columns=columns).to_pandas().nlargest(2, "exposure"))
print(pl.scan_pyarrow_dataset(frames).select(columns).filter(pl.col("exposure") < 0).collect())
print(duckdb.sql("SELECT count(*) AS frames, avg(exposure) AS exposure FROM frames"))
