"""Results of a run for a few frames: rows of the frames table, files named there, and rows of other tables."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.errors import OutputError
from framekiln.contract.output_names import IMAGES
from framekiln.contract.stage import Stage
from framekiln.output.expected_columns import optional
from framekiln.output.object_store import Store
from framekiln.planning.step import is_file_column
from framekiln.reporting.html.gallery.frame_picks import FrameKey, Pick, rows_of
from framekiln.reporting.table_rows import TableFiles, batches, find_table

MOST_ROWS = 200  # of one table about one frame
_MEDIA, _FRAME, _STRETCH = "media_id", "frame_index", ("first_frame", "last_frame")

Row = Mapping[str, Any]


class Findings:
    """Arguments of each stage's `draw`."""

    def __init__(self, store: Store, picks: Sequence[Pick], stages: Mapping[str, Stage]) -> None:
        """Read the rows of some frames."""
        self._store = store
        self._rows = rows_of(store, picks)
        tables = [(name, table) for stage in stages.values() for name, table in stage.tables.items()]
        schemas = {name: optional(table.schema, [_MEDIA]) for name, table in tables if _MEDIA in table.schema.names}
        self._tables = {
            name: _rows_by_frame(store, find_table(store, name, schema), picks) for name, schema in schemas.items()
        }

    def row(self, key: FrameKey) -> Row:
        """Return a frame's row of the frames table."""
        return self._rows[key]

    def of(self, stage: Stage, key: FrameKey) -> Row | None:
        """Return a frame's results of one stage; None where the tables lack some of them."""
        row = self._rows[key]
        if stage.scope.first_pass:
            names = stage.outputs.names
            return self._with_files(stage, {name: row[name] for name in names}) if set(names) <= row.keys() else None
        rows = {name: self._tables[name].get(key, []) for name in stage.tables if name in self._tables}
        return {name: row[name] for name in stage.inputs if name in row} | rows if rows else None

    def _with_files(self, stage: Stage, results: dict[str, Any]) -> Row:
        """Replace paths by the content of the files; None where a file is missing."""
        for name, path in list(results.items()):
            if is_file_column(stage.outputs.field(name)) and isinstance(path, str):
                results[name] = None
                if path.startswith(f"{IMAGES}/") and ".." not in path.split("/"):  # only files of this output
                    with suppress(OSError, OutputError, ValueError):
                        results[name] = self._store.read(path)
        return results


def _rows_by_frame(store: Store, table: TableFiles, picks: Sequence[Pick]) -> dict[FrameKey, list[Row]]:
    """Return the rows of a table about some frames."""
    indices: dict[str, list[int]] = defaultdict(list)
    for pick in picks:
        indices[pick.media_id].append(pick.frame_index)
    rows: dict[FrameKey, list[Row]] = defaultdict(list)
    for file in table.files:
        for row in _rows_of_media(store, file, indices):
            for index in indices[row[_MEDIA]]:
                key = (row[_MEDIA], index)
                if _covers(row, index) and len(rows[key]) < MOST_ROWS:
                    rows[key].append(row)
    return rows


def _rows_of_media(store: Store, file: str, media: Collection[str]) -> Iterator[Row]:
    """Yield rows about some media files, without images, since a table may hold gigabytes of them."""
    ids = pa.array(list(media), pa.string())
    if not any(pc.any(pc.is_in(batch[_MEDIA], ids)).as_py() for batch in batches(store, file, [_MEDIA])):
        return
    with store.parquet(file) as table:
        plain = [item.name for item in table.schema_arrow if not _holds_bytes(item.type)]
    for batch in batches(store, file, plain, rows=2048):
        yield from batch.filter(pc.is_in(batch[_MEDIA], ids)).to_pylist()


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return True
    return any(_holds_bytes(kind.field(i).type) for i in range(kind.num_fields))


def _covers(row: Row, index: int) -> bool:
    """Return whether a row is about a frame: by its frame_index, else by its first and last frame."""
    if _FRAME in row:
        return bool(row[_FRAME] == index)
    first, last = (row.get(name) for name in _STRETCH)
    return (first is None or first <= index) and (last is None or index <= last)
