"""Frames of an output's media, decoded again as the run decoded them."""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from framekiln.contract.columns import Image
from framekiln.contract.errors import ConfigError, InputError, did_you_mean
from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile, as_int64
from framekiln.media.media_ids import is_url
from framekiln.output.object_store import Store
from framekiln.output.unit_table import read_units


def read_frame(store: Store, settings: Mapping[str, Any], media_id: str, frame_index: int, pixels: str) -> Image:
    """Return one frame (h w 3, RGB uint8).

    Args:
        store: the output.
        settings: those of decoding in its run.json.
        media_id: of the file.
        frame_index: number of the frame in the file.
        pixels: the size, named as a pixel column: `frame`, `frame_224`.

    Raises:
        ConfigError: the output has no such file.
        InputError: the file was moved or changed since, or has no such frame.
        MediaError: the file cannot be opened any more.
    """
    from framekiln.media.packets.decode import decode_frames  # loads the decoders

    media = _check_unchanged(_find(store, media_id))
    known = {item.name for item in fields(DecodeConfig)}
    config = DecodeConfig(**{name: value for name, value in settings.items() if name in known})
    for frame in decode_frames(media, (pixels,), config, first=frame_index):
        if frame.index == frame_index:
            return frame.images[pixels]
    raise InputError(
        f"{media_id!r} has no frame {frame_index} that the run kept; the table `frames` lists its frames.",
        code="FK-NO-SUCH-FRAME",
    )


def _find(store: Store, media_id: str) -> MediaFile:
    units = sorted(read_units(store), key=lambda unit: unit.attempt)
    media = {item.media_id: item for unit in units for item in unit.media}
    if media_id not in media:
        near = did_you_mean(media_id, media) if len(media) < 1000 else ""
        raise ConfigError(f"There is no file {media_id!r} in {store.root!r}.{near}", code="FK-UNKNOWN-FILE")
    return media[media_id]


def _check_unchanged(media: MediaFile) -> MediaFile:
    """Return a file after checking that it is as it was listed; one in a bucket is not checked."""
    if is_url(media.path):
        return media
    try:
        stat = os.stat(Path(media.path))  # noqa: PTH116 - pathlib raises for some names
    except (OSError, ValueError) as error:
        raise InputError(
            f"The file {media.path!r} of {media.media_id!r} is gone; bring it back, or run again on its new place.",
            code="FK-INPUT-MISSING",
        ) from error
    if (stat.st_size, as_int64(stat.st_mtime_ns)) != (media.size, media.mtime_ns):
        raise InputError(
            f"The file {media.path!r} has changed since the run; run again, which computes its rows again.",
            code="FK-INPUT-CHANGED",
        )
    return media
