"""The pictures of exported rows: their source, and their encoding.

copy          a photo's own bytes if every reader shows them alike; else, and for videos, JPEG
resize:N      JPEG with a short side of N px, never enlarged: what img2dataset calls keep_ratio with
              resize_only_if_bigger, since models cut a square out of the short side
crop:faces    a JPEG of each face, with a margin
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any

from framekiln.contract.columns import Image, pixel_column
from framekiln.contract.errors import ConfigError, InputError, MediaError, Reason, did_you_mean
from framekiln.contract.output_names import RUN_RECORD
from framekiln.contract.row_errors import Failure
from framekiln.export.annotation import Annotation, ExportedImage
from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile, shown_path, status_of
from framekiln.media.images.stills import Still, encode, read_still, shrink
from framekiln.media.media_ids import is_url
from framekiln.media.packets.decode import decode_frames
from framekiln.media.source_reader import as_failure
from framekiln.output.object_store import Store
from framekiln.output.unit_table import tabulated_files

Pictured = tuple[ExportedImage, Still]
"""An image at its picture's size."""
CROP = "crop:faces"
_AHEAD = 32  # photos read at once: encoded they take at most some 100 MB
_MARGIN = 0.3  # of a face's sides on each side, so that hair and chin are on it: detectors' boxes end at the forehead


@dataclass(frozen=True, kw_only=True)
class PictureReader:
    """Reads the pictures of the rows of one output."""

    media: Mapping[str, MediaFile]  # by media_id
    config: DecodeConfig  # the run's configuration, so that frames have the same numbers
    way: str  # copy, resize:N or crop:faces

    def read(self, images: Sequence[ExportedImage]) -> Iterator[list[Pictured] | Failure]:
        """Yield each image's pictures in order (one, or one for each face), or why there is none.

        A video's frames are decoded in one pass if they come in ascending order.
        """
        groups = [list(part) for _, part in groupby(images, key=lambda image: image.media_id)]
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            for is_single, parts in groupby(groups, key=lambda group: len(group) == 1):
                if not is_single:
                    for group in parts:
                        yield from self._read_frames(group)
                    continue
                singles = [group[0] for group in parts]
                for start in range(0, len(singles), _AHEAD):
                    yield from pool.map(self._read_one, singles[start : start + _AHEAD])

    def find_size(self, image: ExportedImage) -> tuple[int, int]:
        """Return width and height of a frame's picture."""
        side = int(self.way.removeprefix("resize:")) if self.way.startswith("resize:") else 0
        scale = min(1.0, side / min(image.width, image.height)) if side else 1.0
        return max(1, round(image.width * scale)), max(1, round(image.height * scale))

    def _read_one(self, image: ExportedImage) -> list[Pictured] | Failure:
        media = self.media[image.media_id]
        try:
            own = read_still(media, self.config.max_pixels) if self.way == "copy" else None
        except MediaError as error:
            return as_failure(media, error, image.frame_index)
        return [(image.resized(own.width, own.height), own)] if own else next(self._read_frames([image]))

    def _read_frames(self, images: Sequence[ExportedImage]) -> Iterator[list[Pictured] | Failure]:
        media, left = self.media[images[0].media_id], deque(images)
        pixels = pixel_column(min(self.find_size(images[0])) if self.way.startswith("resize:") else 0)
        error: Exception = MediaError(Reason.CORRUPT, "the frame is not decodable any more")
        try:
            wanted = frozenset(image.frame_index for image in images)
            for frame in decode_frames(media, (pixels,), self.config, wanted=wanted):
                while left[0].frame_index < frame.index:
                    yield as_failure(media, error, left.popleft().frame_index)
                found = list(self._encode(left.popleft(), frame.images[pixels]))
                yield found
        except Exception as caught:
            error = caught
        for image in left:
            yield as_failure(media, error, image.frame_index)

    def _encode(self, image: ExportedImage, pixels: Image) -> Iterator[Pictured]:
        if self.way == CROP:
            for item in image.annotations:
                if item.kind == "faces" and (cut := _cut(item, image)):
                    cropped, (left, top) = cut
                    yield cropped, encode(pixels[top : top + cropped.height, left : left + cropped.width])
            return
        width, height = self.find_size(image)
        yield image.resized(width, height), encode(shrink(pixels, height, width))


def _cut(face: Annotation, image: ExportedImage) -> tuple[ExportedImage, tuple[int, int]] | None:
    """Return the image of one face with only its annotation, and its top left corner; None if it is outside."""
    x0, y0, x1, y1 = face.box
    by_x, by_y = _MARGIN * (x1 - x0), _MARGIN * (y1 - y0)
    left, top = max(0, int(x0 - by_x)), max(0, int(y0 - by_y))
    width, height = min(image.width, round(x1 + by_x)) - left, min(image.height, round(y1 + by_y)) - top
    if width < 1 or height < 1:
        return None
    points = [(x - left, y - top, seen) if seen else (x, y, seen) for x, y, seen in face.keypoints]
    moved = replace(face, box=(x0 - left, y0 - top, x1 - left, y1 - top), keypoints=points)
    return replace(image, width=width, height=height, annotations=[moved]), (left, top)


def read_rules(record: Mapping[str, Any]) -> DecodeConfig:
    """Return the decoding rules in a run.json."""
    known, settings = {item.name for item in fields(DecodeConfig)}, record["decode"]
    return DecodeConfig(**{name: value for name, value in settings.items() if name in known})


def find_originals(store: Store, names: Iterable[str]) -> Mapping[str, MediaFile]:
    """Return some files of an output by `media_id`.

    Raises ConfigError: a name has no file. Raises InputError: a file was moved or changed since the run.
    """
    media, found = tabulated_files(store), {}
    for name in names:
        if name not in media:
            near = did_you_mean(name, media) if len(media) < 1000 else ""
            raise ConfigError(f"There is no file {name!r} in {store.root!r}.{near}", code="FK-UNKNOWN-FILE")
        found[name] = check_unchanged(media[name])
    return found


def open_pictures(store: Store, names: Iterable[str], images: str) -> PictureReader:
    """Return the reader of some files' pictures. `images`: as in an export's request.

    Raises InputError: a file was moved or changed since the run.
    """
    if images == "none":
        return PictureReader(media={}, config=DecodeConfig(), way=images)
    way = "copy" if images == "link" else images
    return PictureReader(media=find_originals(store, names), config=read_rules(store.read_json(RUN_RECORD)), way=way)


def check_unchanged(media: MediaFile) -> MediaFile:
    """Return a file after checking that it is unchanged since the listing; files in buckets are not checked."""
    if is_url(media.path):
        return media
    try:
        status = status_of(media)
    except (OSError, ValueError) as error:
        raise InputError(
            f"The file {shown_path(media.path)!r} of {media.media_id!r} is gone; bring it back, or run again on its "
            "new place.",
            code="FK-INPUT-MISSING",
        ) from error
    if status != (media.size, media.mtime_ns):
        raise InputError(
            f"The file {shown_path(media.path)!r} has changed since the run; run again, which computes its rows again.",
            code="FK-INPUT-CHANGED",
        )
    return media
