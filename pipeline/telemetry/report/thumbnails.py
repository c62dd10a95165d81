"""Pictures of the collection, to draw over what the stages found: a wrong number is believed, a wrong drawing seen."""

from __future__ import annotations

import base64
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.columns import Image, views
from pipeline.ledger import UNITS
from pipeline.media.config import DecodeConfig
from pipeline.media.decode import decode
from pipeline.media.names import is_url
from pipeline.media.store import Media
from pipeline.media.units import Unit
from pipeline.storage import Store
from pipeline.telemetry.report.picks import Key
from pipeline.telemetry.report.rows import batches

SIDE = 240  # px, short side
LONGEST = 420  # px, long side of panoramas
QUALITIES = (80, 60, 40, 20)  # of JPEG, the first that is small enough: about 15 kB each by the first
LARGEST = 30_000  # bytes: with a hundred of them a page can still be mailed
PIXELS = "frame_256"  # the nearest size above SIDE


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


def thumbnails(store: Store, keys: Collection[Key], settings: Mapping[str, Any]) -> dict[Key, Thumbnail]:
    """Pictures decoded again from the media; those of files that were moved or changed, or give none, are left out.

    Args:
        store: the output, which knows where its media lay.
        keys: the frames, near the starts of their files.
        settings: of decoding in that run, as in run.json.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for name, index in keys:
        wanted[name].add(index)
    made: dict[Key, Thumbnail] = {}
    for media in _unchanged(store, wanted):
        pictures = _pictures(media, wanted[media.media_id], settings)
        made |= {(media.media_id, index): picture for index, picture in pictures.items()}
    return made


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
    return Thumbnail(jpeg=as_jpeg(cv2.cvtColor(small, cv2.COLOR_RGB2BGR)), width=size[0], height=size[1])


def as_jpeg(image: NDArray[np.uint8]) -> bytes:
    """A small picture (h w 3, BGR) as JPEG, by a lower quality where it would be larger than `LARGEST`."""
    data = b""
    for quality in QUALITIES:
        data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        if len(data) <= LARGEST:
            break
    return data
