"""Lance: a table for each split that is read by row number as fast as in order, pictures included.

A shard is one commit, so a table has one version for each shard, and an export continues after the last.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from framekiln.contract.errors import ConfigError
from framekiln.export.formats.record import Sharded, for_arrow, make_record, make_schema
from framekiln.export.pictures import Pictured

_BATCH = 64  # rows in memory at once


class Writer(Sharded):
    """Writes SPLIT.lance with the Hugging Face format's columns; `image` holds the picture's bytes."""

    def __init__(self, *given: Any) -> None:
        """Raises ConfigError: pylance is missing, or the destination is a bucket."""
        super().__init__(*given)
        try:
            import lance
        except ImportError as error:
            message = "--to lance needs pylance, which is missing; install it by `pip install 'framekiln[lance]'`."
            raise ConfigError(message, code="FK-EXPORT-LANCE") from error
        if not self.destination.appends:
            message = (
                f"--to lance writes to a disk, and {self.destination.root!r} is in a bucket; export into a folder, and "
                "copy it there."
            )
            raise ConfigError(message, code="FK-EXPORT-LANCE")
        self._lance = lance

    def name_shard(self, split: str, number: int) -> str:  # noqa: ARG002
        """See `Sharded`; all shards of a split are in one table."""
        return f"{split}.lance"

    def has_shard(self, split: str, number: int) -> bool:
        place = self.name_shard(split, number)
        if "_versions" not in self.destination.folders(place):
            return False  # nothing was committed yet
        return int(self._lance.dataset(self.destination.url(place)).version) > number

    def write_shard(self, split: str, number: int, rows: Iterator[Pictured]) -> None:
        schema = pa.schema([("image", pa.large_binary()), *make_schema(self.columns)])
        place = self.destination.url(self.name_shard(split, number))
        reader = pa.RecordBatchReader.from_batches(schema, _make_batches(rows, schema))
        self._lance.write_dataset(reader, place, mode="append" if number else "create")


def _make_batches(rows: Iterator[Pictured], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    batch: list[dict[str, Any]] = []
    for image, still in rows:
        batch.append({"image": still.data, **for_arrow(make_record(image), image)})
        if len(batch) == _BATCH:
            yield pa.RecordBatch.from_pylist(batch, schema=schema)
            batch = []
    yield pa.RecordBatch.from_pylist(batch, schema=schema)
