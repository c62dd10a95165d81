"""Thumbnails of frames, decoded again from the media, for drawings of results."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framekiln.contract.columns import Image, views
from framekiln.contract.output_names import UNITS
from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile, status_of
from framekiln.media.media_ids import is_url
from framekiln.media.packets.decode import decode
from framekiln.media.units import Unit
from framekiln.output.object_store import Store
from framekiln.output.unit_table import UNITS_TABLE
from framekiln.reporting.html.gallery.findings import FrameKey
from framekiln.reporting.kit.pages import image_uri
from framekiln.reporting.table_rows import batches

SIDE = 240  # px, short side
LONGEST = 420  # px, long side of panoramas
QUALITIES = (80, 60, 40, 20)  # of JPEG, the first that is small enough: about 15 kB each by the first
LARGEST = 30_000  # bytes: with a hundred of them a page can still be mailed
PIXELS = "frame_256"  # the nearest decoded size above SIDE


@dataclass(frozen=True, kw_only=True)
class Thumbnail:
    """A small image."""

    jpeg: bytes
    width: int
    height: int

    @property
    def uri(self) -> str:
        """The image as a data URI."""
        return image_uri(self.jpeg)


def thumbnails(store: Store, keys: Collection[FrameKey], settings: Mapping[str, Any]) -> dict[FrameKey, Thumbnail]:
    """Decode frames again, without those of files that were moved, changed or cannot be decoded.

    The frames are near the starts of their files. `settings` are those of decoding in run.json.
    """
    indices: dict[str, set[int]] = defaultdict(set)
    for name, index in keys:
        indices[name].add(index)
    images: dict[FrameKey, Thumbnail] = {}
    for media in _unchanged(store, indices):
        by_index = _decoded(media, indices[media.media_id], settings)
        images |= {(media.media_id, index): image for index, image in by_index.items()}
    return images


def _unchanged(store: Store, names: Collection[str]) -> Iterator[MediaFile]:
    """Yield the named files that are unchanged since the listing; those in buckets without a check."""
    unchanged: dict[str, MediaFile] = {}
    for name in store.names(UNITS):
        for batch in batches(store, f"{UNITS}/{name}", expected=UNITS_TABLE):
            for row in batch.filter(pc.is_in(batch["media_id"], pa.array(list(names), pa.string()))).to_pylist():
                fields = {key: row[key] for key in ("media_id", "size", "mtime_ns")}
                media = MediaFile(path=os.fsdecode(row["path"]), **fields)
                if is_url(media.path) or _is_unchanged(media):
                    unchanged[media.media_id] = media
    yield from unchanged.values()


def _is_unchanged(media: MediaFile) -> bool:
    with suppress(OSError, ValueError):
        return status_of(media) == (media.size, media.mtime_ns)
    return False


def _decoded(media: MediaFile, indices: set[int], settings: Mapping[str, Any]) -> dict[int, Thumbnail]:
    config = DecodeConfig(
        every_nth=settings.get("every_nth", 1),
        max_frames=max(indices) + 1,
        max_pixels=settings.get("max_pixels", DecodeConfig.max_pixels),
        clip_frames=1,
        packet_rows=1,  # one frame in memory at a time
    )
    images: dict[int, Thumbnail] = {}
    for packet in decode(Unit(name="report", media=(media,)), [PIXELS], 0, config):
        numbers = packet.rows["frame_index"].to_pylist()
        images |= {
            n: _thumbnail(image) for n, image in zip(numbers, views(packet.rows[PIXELS]), strict=True) if n in indices
        }
        if len(images) == len(indices):
            break
    return images


def _thumbnail(image: Image) -> Thumbnail:
    height, width = image.shape[:2]
    scale = min(1.0, SIDE / min(height, width), LONGEST / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    return Thumbnail(jpeg=as_jpeg(cv2.cvtColor(small, cv2.COLOR_RGB2BGR)), width=size[0], height=size[1])


def as_jpeg(image: NDArray[np.uint8]) -> bytes:
    """Encode an image (h w 3, BGR) as JPEG, at a lower quality where it would exceed `LARGEST`."""
    data = b""
    for quality in QUALITIES:
        data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        if len(data) <= LARGEST:
            break
    return data
