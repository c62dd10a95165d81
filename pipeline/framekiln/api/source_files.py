"""The files that an output was computed from."""

from framekiln.contract.errors import ConfigError, InputError, did_you_mean
from framekiln.media.files import MediaFile, shown_path, status_of
from framekiln.media.media_ids import is_url
from framekiln.output.object_store import Store
from framekiln.output.unit_table import read_units


def find_media(store: Store, media_id: str) -> MediaFile:
    """Return a file of an output as it was listed. Raises ConfigError: there is none of that name."""
    units = sorted(read_units(store), key=lambda unit: unit.attempt)
    media = {item.media_id: item for unit in units for item in unit.media}
    if media_id not in media:
        near = did_you_mean(media_id, media) if len(media) < 1000 else ""
        raise ConfigError(f"There is no file {media_id!r} in {store.root!r}.{near}", code="FK-UNKNOWN-FILE")
    return media[media_id]


def check_unchanged(media: MediaFile) -> MediaFile:
    """Return a file after checking that it is as it was listed; one in a bucket is not checked.

    Raises InputError: it is gone, or has changed.
    """
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
