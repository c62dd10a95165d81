"""Embeddings beside a format that has no place for them: a Parquet table that names the image and the annotation."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from framekiln.output.object_store import Store

SCHEMA = pa.schema(
    [
        ("image_id", pa.int64()),
        ("annotation_id", pa.int64()),  # null for an embedding of the whole image
        ("column", pa.string()),  # of `frames/` that it is from
        ("embedding", pa.list_(pa.float32())),
    ]
)
_ROWS = 10_000
"""Rows of a file: 20 MB of 512 numbers each."""


class Vectors:
    """The files of embeddings/ in a destination, written as they fill."""

    def __init__(self, destination: Store) -> None:
        self._destination = destination
        self._rows: list[dict[str, Any]] = []
        self._files = 0

    def add(self, image_id: int, annotation_id: int | None, column: str, embedding: Sequence[float] | None) -> None:
        """Add an embedding, if there is one."""
        if embedding is None:
            return
        row = {"image_id": image_id, "annotation_id": annotation_id, "column": column, "embedding": embedding}
        self._rows.append(row)
        if len(self._rows) == _ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is left."""
        if self._rows:
            table = pa.Table.from_pylist(self._rows, SCHEMA)
            self._destination.write_table(f"embeddings/part-{self._files:05d}.parquet", table)
            self._files, self._rows = self._files + 1, []
