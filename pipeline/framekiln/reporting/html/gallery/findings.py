"""The frames that a report shows, and all results of a run for them.

The frames are few, spread over the collection, and from the first seconds of their files. So decoding them again takes
seconds for any collection.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import KEYS, FrameKey
from framekiln.contract.errors import OutputError
from framekiln.contract.output_names import IMAGES
from framekiln.contract.stage import Stage
from framekiln.output.kept_tables import MOST_FILES, spread
from framekiln.output.object_store import Store
from framekiln.output.parquet import optional
from framekiln.planning.step import is_file_column
from framekiln.reporting.table_rows import TableFiles, batches, find_table, is_list, readable

COUNT = 24  # a screenful or two
FRAMES_OF_CLIP = 4  # most frames of a clip, if there are fewer files than thumbnails
EXTRA = 3  # more for each step with results
FIRST_S = 3.0  # s of a clip
MOST_DECODED = 90  # frames of a clip: three seconds at 30 fps
FILES_READ = 96  # files of the table that are read for candidates


@dataclass(frozen=True, kw_only=True, order=True)
class Pick:
    """A frame to show; ordered by its key."""

    media_id: str
    frame_index: int
    media_type: str
    file: str  # file of the table, with its row

    @property
    def key(self) -> FrameKey:
        return self.media_id, self.frame_index


def choose_frames(store: Store, table: TableFiles, stages: Mapping[str, Stage]) -> tuple[list[Pick], list[Pick]]:
    """Return sorted frames of as many files as possible, and some with a result of each step.

    Most frames of a collection have no face, but a report on faces must show some; each step's come from different
    files.
    """
    files = spread(spread(table.files, MOST_FILES), FILES_READ)  # the sampled files, which are open
    leaves = readable(store, files[0])[1] if files else {}
    evidence = {  # columns that show whether a step has a result on a frame
        step: [one.name for one in stage.outputs if one.name in leaves and (is_list(one.type) or is_file_column(one))]
        for step, stage in stages.items()
    }
    columns = [*KEYS, "media_type", "time_s", *(leaves[name] for names in evidence.values() for name in names)]
    by_media: dict[str, list[Pick]] = defaultdict(list)
    found: dict[str, dict[str, Pick]] = {step: {} for step, names in evidence.items() if names}
    for file in files:
        for batch in batches(store, file, columns):
            rows = batch.filter(pc.fill_null(pc.less_equal(batch["time_s"], FIRST_S), True))
            picks = [Pick(**row, file=file) for row in rows.select([*KEYS, "media_type"]).to_pylist()]
            for pick in picks:
                if len(by_media[pick.media_id]) < MOST_DECODED:
                    by_media[pick.media_id].append(pick)
            for step, of_step in found.items():
                present = reduce(pc.or_, [_find_present(rows[name]) for name in evidence[step]])
                for pick in (picks[place] for place in np.flatnonzero(present)):
                    if len(of_step) < EXTRA and pick.frame_index < MOST_DECODED:
                        of_step.setdefault(pick.media_id, pick)
    return _spread(by_media), sorted({pick for of_step in found.values() for pick in of_step.values()})


def _spread(by_media: Mapping[str, list[Pick]]) -> list[Pick]:
    """Return frames of half photos and half clips, if there are enough."""
    candidates = dict(sorted(by_media.items()))
    photos = [name for name, picks in candidates.items() if picks[0].media_type == "photo"]
    clips = [name for name, picks in candidates.items() if picks[0].media_type != "photo"]
    for_clips = min(len(clips), max(COUNT // 2, COUNT - len(photos)))
    shown = [*spread(clips, for_clips), *spread(photos, COUNT - for_clips)]
    each = min(FRAMES_OF_CLIP, 1 + (COUNT - len(shown)) // for_clips) if for_clips else 1
    return sorted(pick for name in shown for pick in spread(candidates[name], each))


def _find_present(column: pa.Array) -> pa.Array:
    if is_list(column.type):
        return pc.fill_null(pc.greater(pc.list_value_length(column), 0), False)
    return column.is_valid()


MOST_ROWS = 200  # rows of one table about one frame
_MEDIA, _FRAME, _STRETCH = "media_id", "frame_index", ("first_frame", "last_frame")

Row = Mapping[str, Any]


class Findings:
    """Arguments of each stage's `draw`."""

    def __init__(self, store: Store, picks: Sequence[Pick], stages: Mapping[str, Stage]) -> None:
        """Read the rows of some frames."""
        self._store = store
        keys: dict[str, set[FrameKey]] = defaultdict(set)
        for pick in picks:
            keys[pick.file].add(pick.key)
        self._rows = {key: row for file, left in keys.items() for key, row in _read_rows(store, file, left)}
        tables = [(name, table) for stage in stages.values() for name, table in stage.tables.items()]
        schemas = {name: optional(table.schema, [_MEDIA]) for name, table in tables if _MEDIA in table.schema.names}
        found = {name: find_table(store, name, schema) for name, schema in schemas.items()}
        self._tables = {name: _group_by_frame(store, table, picks) for name, table in found.items()}

    def row(self, key: FrameKey) -> Row:
        return self._rows[key]

    def of(self, stage: Stage, key: FrameKey) -> Row | None:
        """Return a frame's results of one stage; None if the tables lack some."""
        row = self._rows[key]
        if not stage.scope.first_pass:
            rows = {name: self._tables[name].get(key, []) for name in stage.tables if name in self._tables}
            return {name: row[name] for name in stage.inputs if name in row} | rows if rows else None
        if not set(stage.outputs.names) <= row.keys():
            return None
        results = {name: row[name] for name in stage.outputs.names}
        for name in (item.name for item in stage.outputs if is_file_column(item)):  # the content replaces its path
            path, results[name] = results[name], None
            if isinstance(path, str) and path.startswith(f"{IMAGES}/") and ".." not in path.split("/"):
                with suppress(OSError, OutputError, ValueError):
                    results[name] = self._store.read(path)
        return results


def _read_rows(store: Store, file: str, left: set[FrameKey]) -> Iterator[tuple[FrameKey, Row]]:
    """Yield whole rows of the frames table for some frames, and remove these from `left`."""
    for batch in batches(store, file, rows=512):
        ids = zip(*(batch[name].to_pylist() for name in KEYS), strict=True)
        places = {key: i for i, key in enumerate(ids) if key in left}
        yield from zip(places, batch.take(pa.array(list(places.values()), pa.int64())).to_pylist(), strict=True)
        left -= places.keys()
        if not left:
            return


def _group_by_frame(store: Store, table: TableFiles, picks: Sequence[Pick]) -> dict[FrameKey, list[Row]]:
    indices: dict[str, list[int]] = defaultdict(list)
    for pick in picks:
        indices[pick.media_id].append(pick.frame_index)
    rows: dict[FrameKey, list[Row]] = defaultdict(list)
    for row in (row for file in table.files for row in _read_media(store, file, indices)):
        first, last = (row.get(name) for name in _STRETCH)
        for index in indices[row[_MEDIA]]:
            is_inside = (first is None or first <= index) and (last is None or index <= last)
            is_about = row[_FRAME] == index if _FRAME in row else is_inside
            if is_about and len(rows[row[_MEDIA], index]) < MOST_ROWS:
                rows[row[_MEDIA], index].append(row)
    return rows


def _read_media(store: Store, file: str, media: Collection[str]) -> Iterator[Row]:
    """Yield rows about some media files, without images, since a table may hold gigabytes of these."""
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
