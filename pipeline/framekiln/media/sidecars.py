"""XMP sidecars: files beside photos and videos in which editors keep a person's notes.

They are found in the listing, so a file without one costs no request. A sidecar is part of its file's identity: after a
change the file is computed again. A damaged or hostile sidecar is ignored.
"""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import replace

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.access import access_errors
from framekiln.media.files import MediaFile, open_media
from framekiln.media.tags import Tags, read_sidecar_tags

_ENDING = ".xmp"
_MOST_BYTES = 4 << 20  # editors write some 10 KB, and up to 1 MB with masks; a ZIP member may claim any size


def with_sidecars(media: Sequence[MediaFile]) -> Iterator[MediaFile]:
    """Yield each file with the listing's sidecar for it, and the sidecars of no file.

    `a.jpg.xmp` wins over `a.xmp`, which may belong to `a.dng`. A sidecar that cannot be opened has size 0 in the
    listing. It stays a file of the run, so that it is a row in the errors table.
    """
    beside = {name: item for item in media if (name := _strip_ending(item.media_id))}
    others = [item for item in media if not _strip_ending(item.media_id)]
    used = set[str]()
    for item in others:
        found = beside.get(item.media_id) or beside.get(posixpath.splitext(item.media_id)[0])
        if found is not None and found.size:
            used.add(found.media_id)
        yield item if found is None else replace(item, sidecar=found)
    yield from (item for item in media if _strip_ending(item.media_id) and item.media_id not in used)


def read_sidecar(media: MediaFile) -> Tags:
    """Return the tags of a sidecar; none if it is unreadable, larger than 4 MB, or no XMP.

    Raises MediaError: UNREACHABLE.
    """
    if media.size > _MOST_BYTES:
        return {}
    try:
        with access_errors(), open_media(media) as stream:
            return read_sidecar_tags(stream.read(_MOST_BYTES))
    except MediaError as error:
        if error.reason is Reason.UNREACHABLE:
            raise
        return {}


def is_sidecar(name: str) -> bool:
    """Return whether a name is a sidecar's."""
    return name[-len(_ENDING) :].lower() == _ENDING


def _strip_ending(name: str) -> str:
    """Return the beginning of a sidecar's name; empty for another file."""
    return name[: -len(_ENDING)] if is_sidecar(name) else ""
