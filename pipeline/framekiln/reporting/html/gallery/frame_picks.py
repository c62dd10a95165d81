"""Choice of the frames that a report shows.

They are few, spread over the collection, and from the first seconds of their files, so that decoding them again takes
seconds for any collection.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from framekiln.contract.columns import KEYS
from framekiln.contract.stage import Stage
from framekiln.output.object_store import Store
from framekiln.planning.step import is_file_column
from framekiln.reporting.table_rows import TableFiles, batches, is_list, readable, spread

COUNT = 24  # a screenful or two
FRAMES_OF_CLIP = 4  # at most, where there are fewer files than thumbnails
EXTRA = 3  # more for each step, where it has results
FIRST_S = 3.0  # of a clip
MOST_DECODED = 90  # frames of a clip: three seconds at 30 fps
FILES_READ = 96  # of the table, to find candidates

FrameKey = tuple[str, int]


@dataclass(frozen=True, kw_only=True, order=True)
class Pick:
    """A frame to show; ordered by its key."""

    media_id: str
    frame_index: int
    media_type: str
    file: str  # of the table, that holds its row

    @property
    def key(self) -> FrameKey:
        """The media_id and frame_index."""
        return self.media_id, self.frame_index


def spread_frames(store: Store, table: TableFiles, most: int = COUNT) -> list[Pick]:
    """Return sorted frames of as many files as possible, half photos and half clips where there are enough."""
    candidates = _candidates(store, spread(table.files, FILES_READ))
    photos = [name for name, picks in candidates.items() if picks[0].media_type == "photo"]
    clips = [name for name, picks in candidates.items() if picks[0].media_type != "photo"]
    for_clips = min(len(clips), max(most // 2, most - len(photos)))
    shown = [*spread(clips, for_clips), *spread(photos, most - for_clips)]
    places = most - len(shown)
    each = min(FRAMES_OF_CLIP, 1 + places // for_clips) if for_clips else 1
    return sorted(pick for name in shown for pick in spread(candidates[name], each))


def _candidates(store: Store, files: Iterable[str]) -> dict[str, list[Pick]]:
    """Return the frames of the first seconds of each media file, in order."""
    picks: dict[str, list[Pick]] = defaultdict(list)
    for file in files:
        for batch in batches(store, file, [*KEYS, "media_type", "time_s"]):
            for row in batch.filter(_early(batch)).select([*KEYS, "media_type"]).to_pylist():
                if len(picks[row["media_id"]]) < MOST_DECODED:
                    picks[row["media_id"]].append(Pick(**row, file=file))
    return dict(sorted(picks.items()))


def _early(batch: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(pc.less_equal(batch["time_s"], FIRST_S), True)


def frames_with_findings(store: Store, table: TableFiles, stages: Mapping[str, Stage], most: int = EXTRA) -> list[Pick]:
    """Return sorted frames for which steps have a list with an item, or a file; each step's of different files.

    Most frames of a collection have no face, but a report on faces must show some.
    """
    if not table.files:
        return []
    _, leaves = readable(store, table.files[0])
    evidence = {  # columns that show whether a step has a result for a frame
        step: [one.name for one in stage.outputs if one.name in leaves and (is_list(one.type) or is_file_column(one))]
        for step, stage in stages.items()
    }
    columns = [*KEYS, "media_type", "time_s", *(leaves[name] for names in evidence.values() for name in names)]
    picks: dict[str, dict[str, Pick]] = {step: {} for step, names in evidence.items() if names}
    for file in spread(table.files, FILES_READ):
        for batch in batches(store, file, columns):
            for step, by_file in picks.items():
                if len(by_file) >= most:
                    continue
                present = reduce(pc.or_, [_is_present(batch[name]) for name in evidence[step]])
                rows = batch.filter(pc.and_(_early(batch), present)).select([*KEYS, "media_type"]).to_pylist()
                for row in rows:
                    if row["frame_index"] < MOST_DECODED and len(by_file) < most:
                        by_file.setdefault(row["media_id"], Pick(**row, file=file))
    return sorted({pick for by_file in picks.values() for pick in by_file.values()})


def _is_present(column: pa.Array) -> pa.Array:
    if is_list(column.type):
        return pc.fill_null(pc.greater(pc.list_value_length(column), 0), False)
    return column.is_valid()


def rows_of(store: Store, picks: Sequence[Pick]) -> dict[FrameKey, Mapping[str, Any]]:
    """Return whole rows of the table for some frames."""
    keys: dict[str, set[FrameKey]] = defaultdict(set)
    for pick in picks:
        keys[pick.file].add(pick.key)
    return {key: row for file, of_file in keys.items() for key, row in _rows(store, file, of_file)}


def _rows(store: Store, file: str, keys: set[FrameKey]) -> Iterator[tuple[FrameKey, Mapping[str, Any]]]:
    left = set(keys)
    for batch in batches(store, file, rows=512):
        ids = zip(*(batch[name].to_pylist() for name in KEYS), strict=True)
        places = {key: i for i, key in enumerate(ids) if key in left}
        yield from zip(places, batch.take(pa.array(list(places.values()), pa.int64())).to_pylist(), strict=True)
        left -= places.keys()
        if not left:
            return
