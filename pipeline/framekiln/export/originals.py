"""The files that an output's rows are of, and the rules by which they were decoded."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from framekiln.contract.errors import ConfigError, InputError, did_you_mean
from framekiln.contract.output_names import RUN_RECORD
from framekiln.export.pictures import PictureReader
from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile, shown_path, status_of
from framekiln.media.media_ids import is_url
from framekiln.output.object_store import Store
from framekiln.output.unit_table import tabulated_files


def read_rules(record: Mapping[str, Any]) -> DecodeConfig:
    """Return the rules of decoding of a run.json."""
    known, settings = {item.name for item in fields(DecodeConfig)}, record["decode"]
    return DecodeConfig(**{name: value for name, value in settings.items() if name in known})


def find_originals(store: Store, names: Iterable[str]) -> Mapping[str, MediaFile]:
    """Return some files of an output by `media_id`.

    Raises ConfigError: there is none of a name; InputError: one was moved or changed since the run.
    """
    media, found = tabulated_files(store), {}
    for name in names:
        if name not in media:
            near = did_you_mean(name, media) if len(media) < 1000 else ""
            raise ConfigError(f"There is no file {name!r} in {store.root!r}.{near}", code="FK-UNKNOWN-FILE")
        found[name] = check_unchanged(media[name])
    return found


def open_pictures(store: Store, names: Iterable[str], images: str) -> PictureReader:
    """Return the reader of the pictures of some files. `images`: as in a request for an export.

    Raises InputError: one of the files was moved or changed since the run.
    """
    if images == "none":
        return PictureReader(media={}, config=DecodeConfig(), way=images)
    way = "copy" if images == "link" else images
    return PictureReader(media=find_originals(store, names), config=read_rules(store.read_json(RUN_RECORD)), way=way)


def check_unchanged(media: MediaFile) -> MediaFile:
    """Return a file after checking that it is as it was listed; one in a bucket is not checked."""
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
