"""Several inputs as one list of files, each file once and each under a name of its own.

Files of the first input have the ids that they have alone, so an output of one input is continued. In front of an id of
a later input stand that input's name and "%3A", an escaped ":" that no other id has: `more%3A/a.jpg` is `a.jpg` of the
input `more/`. Of inputs with the same name, the second is `more%3A2`. A file in several inputs belongs to the first.
"""

# Names stay strings as the system gave them, and pathlib would not keep them so.
# ruff: noqa: PTH118, PTH119, PTH120
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter

from framekiln.media.discovery.listing import fixed_part, list_media
from framekiln.media.files import MediaFile, local_path
from framekiln.media.media_ids import escape, is_url, media_id

_MARK = "%3A"  # ":" is never escaped in an id, so no file has it


def list_inputs(
    sources: Sequence[str], output: str | None = None, on_message: Callable[[str], None] = lambda _: None
) -> list[MediaFile]:
    """Return every file of the inputs once, sorted by `media_id`; see `list_media`, also for errors.

    `on_message` is called with sentences on files in several inputs too.
    """
    listings = [list_media(source, output, on_message) for source in sources]
    if len(listings) == 1:
        return listings[0]
    result: list[MediaFile] = []
    seen: set[str] = set()
    for source, prefix, listing in zip(sources, _make_prefixes(sources), listings, strict=True):
        places = [_make_comparable(item.path) for item in listing]
        new = [item for item, place in zip(listing, places, strict=True) if place not in seen]
        seen.update(places)
        result += [replace(item, media_id=prefix + item.media_id) for item in new]
        if again := len(listing) - len(new):
            files = "file" if again == 1 else "files"
            on_message(f"Read once: {again:,} {files} of {escape(source)!r}, in an earlier input too.")
    return sorted(result, key=attrgetter("media_id"))


def _make_prefixes(sources: Sequence[str]) -> Iterator[str]:
    """Yield the id prefix of each input."""
    yield ""
    counts: Counter[str] = Counter()
    for source in sources[1:]:
        path = fixed_part(source).partition("?")[0] if is_url(source) else fixed_part(local_path(source) or source)
        name = media_id(os.path.basename(path.rstrip("/")))  # of the folder, list or file
        counts[name] += 1
        yield f"{name}{_MARK}{counts[name] if counts[name] > 1 else ''}/"


def _make_comparable(path: str) -> str:
    """Return a path or URL in a form that is the same in every input."""
    return path if is_url(path) else os.path.join(_resolve_folder(os.path.dirname(path)), os.path.basename(path))


@lru_cache(maxsize=1 << 16)
def _resolve_folder(folder: str) -> str:
    try:
        return os.path.realpath(folder)
    except (OSError, ValueError):  # an entry of a list may be no valid path
        return folder
