"""All that a run found of a few frames: their row of the frames, files that it names, and rows of tables about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import OutputError
from pipeline.stage import Stage
from pipeline.step import is_file_column
from pipeline.storage import Store
from pipeline.telemetry.report.picks import Key, Pick, rows_of
from pipeline.telemetry.report.rows import Folder, batches, look

MOST_ROWS = 200  # of one table about one frame
_FILES = "images/"
_MEDIA, _FRAME, _STRETCH = "media_id", "frame_index", ("first_frame", "last_frame")

Row = Mapping[str, Any]


class Findings:
    """What each stage's `preview` is given."""

    def __init__(self, store: Store, picks: Sequence[Pick], stages: Mapping[str, Stage]) -> None:
        """Read the rows of some frames.

        Args:
            store: the output.
            picks: the frames.
            stages: of the run, by step.
        """
        self._store = store
        self._rows = rows_of(store, picks)
        names = [name for stage in stages.values() for name, table in stage.tables.items() if _told(table.schema)]
        self._tables = {name: _about(store, look(store, name), picks) for name in names}

    def row(self, key: Key) -> Row:
        """A frame's row of the frames table."""
        return self._rows[key]

    def of(self, stage: Stage, key: Key) -> Row | None:
        """A frame's findings of one stage; None where the tables lack some of them."""
        row = self._rows[key]
        if stage.scope.first_pass:
            names = stage.outputs.names
            return self._opened(stage, {name: row[name] for name in names}) if set(names) <= row.keys() else None
        about = {name: self._tables[name].get(key, []) for name in stage.tables if name in self._tables}
        return {name: row[name] for name in stage.inputs if name in row} | about if about else None

    def _opened(self, stage: Stage, own: dict[str, Any]) -> Row:
        """With the content of files in the place of their paths; None where a file has gone."""
        for name, path in list(own.items()):
            if is_file_column(stage.outputs.field(name)) and isinstance(path, str):
                own[name] = None
                if path.startswith(_FILES) and ".." not in path.split("/"):  # of this output, and nothing else
                    with suppress(OSError, OutputError, ValueError):
                        own[name] = self._store.read(path)
        return own


def _told(schema: pa.Schema) -> bool:
    return _MEDIA in schema.names


def _about(store: Store, folder: Folder, picks: Sequence[Pick]) -> dict[Key, list[Row]]:
    """Of a table's rows those that speak of some frames."""
    wanted: dict[str, list[int]] = defaultdict(list)
    for pick in picks:
        wanted[pick.media_id].append(pick.frame_index)
    found: dict[Key, list[Row]] = defaultdict(list)
    for file in folder.files:
        for row in _of_files(store, file, wanted):
            for index in wanted[row[_MEDIA]]:
                key = (row[_MEDIA], index)
                if _speaks_of(row, index) and len(found[key]) < MOST_ROWS:
                    found[key].append(row)
    return found


def _of_files(store: Store, file: str, media: Collection[str]) -> Iterator[Row]:
    """Rows about some files of the collection, without pictures, of which a table may hold gigabytes."""
    ids = pa.array(list(media), pa.string())
    if not any(pc.any(pc.is_in(batch[_MEDIA], ids)).as_py() for batch in batches(store, file, [_MEDIA])):
        return
    with store.open(file) as source:
        schema = pq.read_schema(source)
    plain = [item.name for item in schema if not _holds_bytes(item.type)]
    for batch in batches(store, file, plain, rows=2048):
        yield from batch.filter(pc.is_in(batch[_MEDIA], ids)).to_pylist()


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return True
    return any(_holds_bytes(kind.field(i).type) for i in range(kind.num_fields))


def _speaks_of(row: Row, index: int) -> bool:
    if _FRAME in row:
        return bool(row[_FRAME] == index)
    first, last = (row.get(name) for name in _STRETCH)
    return (first is None or first <= index) and (last is None or index <= last)
