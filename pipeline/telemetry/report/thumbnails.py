"""Pictures of the collection, to draw over what the stages found: a wrong number is believed, a wrong drawing seen.

Frames are few, spread over the collection, and from the first seconds of their files, so that decoding them again costs
seconds however large the collection is.
"""

from __future__ import annotations

import base64
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns import KEYS, Image, views
from pipeline.ledger import UNITS
from pipeline.media.config import DecodeConfig
from pipeline.media.decode import decode
from pipeline.media.names import is_url
from pipeline.media.store import Media
from pipeline.media.units import Unit
from pipeline.storage import Store
from pipeline.telemetry.report.rows import Folder, batches, spread

COUNT = 24  # a screenful or two
FRAMES_OF_ONE = 4  # of one clip, where there are fewer files than thumbnails
SIDE = 200  # px, short side
LONGEST = 420  # px, long side of panoramas
QUALITY = 80  # of JPEG: about 12 kB each
PIXELS = "frame_256"  # the nearest size above SIDE
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


@dataclass(frozen=True, kw_only=True)
class Thumbnail:
    """A small picture."""

    jpeg: bytes
    width: int
    height: int

    @property
    def uri(self) -> str:
        """As a data URI."""
        return f"data:image/jpeg;base64,{base64.b64encode(self.jpeg).decode()}"


def choose(store: Store, frames: Folder, most: int = COUNT) -> list[Pick]:
    """Frames to show, sorted: photos and clips half and half where there are enough, of as many files as possible."""
    candidates = _candidates(store, [frames.files[i] for i in spread(len(frames.files), LOOKED_AT)])
    photos = [name for name, found in candidates.items() if found[0].media_type == "photo"]
    clips = [name for name, found in candidates.items() if found[0].media_type != "photo"]
    for_clips = min(len(clips), max(most // 2, most - len(photos)))
    shown = [*_spread_of(clips, for_clips), *_spread_of(photos, most - for_clips)]
    places = most - len(shown)
    each = min(FRAMES_OF_ONE, 1 + places // for_clips) if for_clips else 1
    return sorted((pick for name in shown for pick in _spread_of(candidates[name], each)), key=lambda pick: pick.key)


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


def thumbnails(store: Store, picks: Sequence[Pick], settings: Mapping[str, Any]) -> tuple[dict[Key, Thumbnail], str]:
    """Pictures decoded again from the media, and a sentence about those that could not be.

    Args:
        store: the output, which knows where its media lay.
        picks: the frames.
        settings: of decoding in that run, as in run.json.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for pick in picks:
        wanted[pick.media_id].add(pick.frame_index)
    made: dict[Key, Thumbnail] = {}
    for media in _unchanged(store, wanted):
        pictures = _pictures(media, wanted[media.media_id], settings)
        made |= {(media.media_id, index): picture for index, picture in pictures.items()}
    missing = len(picks) - len(made)
    note = f"{missing} of {len(picks)} chosen frames are not shown: their files were moved or changed after the run."
    return made, note if missing else ""


def _unchanged(store: Store, names: Collection[str]) -> Iterator[Media]:
    """Of the named files those that are still what they were when listed; of one in a bucket, the last listed."""
    found: dict[str, Media] = {}
    for name in store.names(UNITS):
        for batch in batches(store, f"{UNITS}/{name}"):
            for row in batch.filter(pc.is_in(batch["media_id"], pa.array(list(names), pa.string()))).to_pylist():
                path = os.fsdecode(row["path"])
                if is_url(path) or _stat(path) == (row["size"], row["mtime_ns"]):
                    fields = {key: row[key] for key in ("media_id", "size", "mtime_ns")}
                    found[row["media_id"]] = Media(path=path, **fields)
    yield from found.values()


def _stat(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns


def _pictures(media: Media, indices: set[int], settings: Mapping[str, Any]) -> dict[int, Thumbnail]:
    config = DecodeConfig(
        every_nth=settings.get("every_nth", 1),
        max_frames=max(indices) + 1,
        max_pixels=settings.get("max_pixels", DecodeConfig.max_pixels),
        clip_frames=1,
        packet_rows=1,  # each frame by itself: what is not wanted is gone before the next is decoded
    )
    made: dict[int, Thumbnail] = {}
    for packet in decode(Unit(name="report", media=(media,)), [PIXELS], 0, config):
        numbers = packet.rows["frame_index"].to_pylist()
        made |= {
            n: _thumbnail(image) for n, image in zip(numbers, views(packet.rows[PIXELS]), strict=True) if n in indices
        }
        if len(made) == len(indices):
            break
    return made


def _thumbnail(image: Image) -> Thumbnail:
    height, width = image.shape[:2]
    scale = min(1.0, SIDE / min(height, width), LONGEST / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    done, data = cv2.imencode(".jpg", cv2.cvtColor(small, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    if not done:
        raise ValueError(f"a picture of {width} x {height} px cannot be written as JPEG")
    return Thumbnail(jpeg=data.tobytes(), width=size[0], height=size[1])
