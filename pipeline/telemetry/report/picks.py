"""Which frames a report shows.

They are few, spread over the collection, and from the first seconds of their files, so that decoding them again costs
seconds however large the collection is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns import KEYS
from pipeline.stage import Stage
from pipeline.step import is_file_column
from pipeline.storage import Store
from pipeline.telemetry.report.rows import Folder, batches, is_list, leaves_of, spread

COUNT = 24  # a screenful or two
FRAMES_OF_ONE = 4  # of one clip, where there are fewer files than thumbnails
EXTRA = 3  # more for each step, where it has found something
FIRST_S = 3.0  # of a clip
MOST_DECODED = 90  # frames of a clip: three seconds at 30 fps
LOOKED_AT = 96  # files of the table in which candidates are looked for

Key = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Pick:
    """A frame to show."""

    media_id: str
    frame_index: int
    media_type: str
    file: str  # of the table, in which its row lies

    @property
    def key(self) -> Key:
        """What identifies the frame."""
        return self.media_id, self.frame_index


def by_key(pick: Pick) -> Key:
    """What frames are sorted by."""
    return pick.key


def choose(store: Store, frames: Folder, most: int = COUNT) -> list[Pick]:
    """Frames to show, sorted: photos and clips half and half where there are enough, of as many files as possible."""
    candidates = _candidates(store, [frames.files[i] for i in spread(len(frames.files), LOOKED_AT)])
    photos = [name for name, found in candidates.items() if found[0].media_type == "photo"]
    clips = [name for name, found in candidates.items() if found[0].media_type != "photo"]
    for_clips = min(len(clips), max(most // 2, most - len(photos)))
    shown = [*_spread_of(clips, for_clips), *_spread_of(photos, most - for_clips)]
    places = most - len(shown)
    each = min(FRAMES_OF_ONE, 1 + places // for_clips) if for_clips else 1
    return sorted((pick for name in shown for pick in _spread_of(candidates[name], each)), key=by_key)


def _spread_of(items: Sequence[Any], most: int) -> list[Any]:
    return [items[i] for i in spread(len(items), most)] if most else []


def _candidates(store: Store, files: Iterable[str]) -> dict[str, list[Pick]]:
    """By file of the collection, in order: the frames of its first seconds."""
    found: dict[str, list[Pick]] = defaultdict(list)
    for file in files:
        for batch in batches(store, file, [*KEYS, "media_type", "time_s"]):
            early = pc.fill_null(pc.less_equal(batch["time_s"], FIRST_S), True)
            for row in batch.filter(early).select([*KEYS, "media_type"]).to_pylist():
                if len(found[row["media_id"]]) < MOST_DECODED:
                    found[row["media_id"]].append(Pick(**row, file=file))
    return dict(sorted(found.items()))


def telling(store: Store, frames: Folder, stages: Mapping[str, Stage], most: int = EXTRA) -> list[Pick]:
    """Frames in which steps found something, sorted: a list with an item, or a file; each of another file.

    Most frames of a collection have no face; a report on faces must show some all the same.
    """
    if not frames.files:
        return []
    leaves = leaves_of(store, frames.files[0])
    evidence = {step: [name for name in _evidence(stage) if name in leaves] for step, stage in stages.items()}
    read = [leaves[name] for names in evidence.values() for name in names]
    found: dict[str, dict[str, Pick]] = {step: {} for step, names in evidence.items() if names}
    for file in (frames.files[i] for i in spread(len(frames.files), LOOKED_AT)):
        for batch in batches(store, file, [*KEYS, "media_type", "time_s", *read]):
            early = pc.fill_null(pc.less_equal(batch["time_s"], FIRST_S), True)
            for step in (one for one in found if len(found[one]) < most):
                some = reduce(pc.or_, [_is_something(batch[name]) for name in evidence[step]])
                for row in batch.filter(pc.and_(early, some)).select([*KEYS, "media_type"]).to_pylist():
                    if row["frame_index"] < MOST_DECODED and len(found[step]) < most:
                        found[step].setdefault(row["media_id"], Pick(**row, file=file))
    return sorted({pick.key: pick for one in found.values() for pick in one.values()}.values(), key=by_key)


def _evidence(stage: Stage) -> list[str]:
    """Columns by which one sees that a stage found something."""
    return [item.name for item in stage.outputs if is_list(item.type) or is_file_column(item)]


def _is_something(column: pa.Array) -> pa.Array:
    if is_list(column.type):
        return pc.fill_null(pc.greater(pc.list_value_length(column), 0), False)
    return column.is_valid()


def rows_of(store: Store, picks: Sequence[Pick]) -> dict[Key, Mapping[str, Any]]:
    """The whole rows of the table for some frames."""
    wanted: dict[str, set[Key]] = defaultdict(set)
    for pick in picks:
        wanted[pick.file].add(pick.key)
    return {key: row for file, keys in wanted.items() for key, row in _found(store, file, keys)}


def _found(store: Store, file: str, keys: set[Key]) -> Iterator[tuple[Key, Mapping[str, Any]]]:
    left = set(keys)
    for batch in batches(store, file, rows=512):
        ids = zip(*(batch[name].to_pylist() for name in KEYS), strict=True)
        places = {key: i for i, key in enumerate(ids) if key in left}
        yield from zip(places, batch.take(pa.array(list(places.values()), pa.int64())).to_pylist(), strict=True)
        left -= places.keys()
        if not left:
            return
