"""The list of inputs' files, made without opening them; non-media is found on decoding.

Only archives (`.tar`, `.zip`) are opened, for the list of their members.

    photos/                 a folder: every file below it, except hidden ones (".name")
    "photos/2024-*/*.jpg"   a glob; a matching folder stands for all files below it
    photos/a.jpg            one file
    files.txt               text with a path or URL on each line, relative to the text file's folder
    files.parquet           a table with a column `path` or `url`, likewise; also as CSV
    s3://bucket/photos      a folder, glob, file or list in an object store; gs:// and file:// too
    https://host/files.txt  a file or list of a web server

A single file is classified by content. A file with Parquet's magic number is a table of paths. Text with a URL, or with
a line that names an existing file, is a list of paths. Anything else is media.

Outputs of runs are excluded (`output_filter`), unless a list or the fixed part of a pattern names them.

With several inputs each file is listed once, under a unique name. Files of the first input keep their ids, so an output
of one input is continued. Ids of later inputs get a prefix: the input's name and "%3A", an escaped ":" that no other id
has. `more%3A/a.jpg` is `a.jpg` of the input `more/`. A second input of the same name is `more%3A2`. A file in several
inputs belongs to the first.
"""

import difflib

# Names stay strings as the system gave them, and pathlib would make listing several times slower.
# ruff: noqa: PTH112, PTH113, PTH116, PTH118, PTH119, PTH120, PTH208
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from operator import attrgetter

import pyarrow as pa

from framekiln.contract.errors import ConfigError, InputError, MediaError, did_you_mean
from framekiln.contract.store_url import StoreUrl
from framekiln.contract.words import counted
from framekiln.media.access import may_pass
from framekiln.media.archives import with_members
from framekiln.media.discovery.folder_walk import FolderWalk, GlobPattern, local_file
from framekiln.media.discovery.output_filter import OutputFilter
from framekiln.media.discovery.path_lists import read_path_list
from framekiln.media.discovery.remote import (
    MAGIC,
    Lister,
    list_entries,
    list_remote,
    make_no_files_error,
    make_no_match_error,
)
from framekiln.media.files import MediaFile, local_path, open_local
from framekiln.media.media_ids import escape, is_url, is_web, media_id
from framekiln.media.sidecars import with_sidecars

_SLOW_FIX = "Raise `network: timeout_s` and `retries` in the profile, or try again later."


def list_media(
    source: str, output: str | None = None, on_message: Callable[[str], None] = lambda _: None
) -> list[MediaFile]:
    """Return every file of the input once, sorted by `media_id`.

    Unreadable entries stay in the list with size 0: missing files and bad URLs of a list, broken links, folders without
    permission, pipes, sockets, devices. Decoding reports why, so that no file is lost silently.

    This run's output and others inside the input are excluded; `on_message` gets a sentence about them.

    Raises:
        InputError: it does not exist, is unreadable, has no files, or is an output itself.
    """
    outputs = OutputFilter(source, output)
    try:
        path = local_path(source)
        lister = partial(list_entries, on_message)
        if path is None:
            found = list_remote(source, outputs, lister)
        else:
            found = _list_local(source, path, outputs, lister, on_message)
        media = list(with_members(found))
    except PermissionError as exc:
        message = f"The input {escape(source)!r} cannot be read: permission denied; grant it, or choose another."
        raise InputError(message, code="FK-INPUT-UNREADABLE") from exc
    except (OSError, ValueError, pa.ArrowException, MediaError) as exc:
        fix = _SLOW_FIX if may_pass(exc) else "Check the address and credentials."
        message = f"The input {escape(source)!r} cannot be read: {escape(str(exc)).rstrip('.')}. {fix}"
        raise InputError(message, code="FK-INPUT-UNREADABLE") from exc
    if message := outputs.message():
        on_message(message)
    pattern = StoreUrl.parse(source).key if path is None else source
    if MAGIC.search(pattern) and not is_web(source) and len(media) == 1 and media[0].path == (path or source):
        on_message(f"{escape(source)!r} is a file of that name, and not taken for a pattern.")
    named = {item.media_id: item for item in media}
    if again := sum(named[item.media_id].path != item.path for item in media):
        on_message(f"Left out: {counted(again, 'file')} of {escape(source)!r}: later ones have the same media_id.")
    return sorted(with_sidecars(list(named.values())), key=attrgetter("media_id"))


def shard(media: Sequence[MediaFile], index: int, count: int) -> list[MediaFile]:
    """Return the files of shard `index` (from 0) of `count`, by a hash of the `media_id`: new files move no others."""
    if not 0 <= index < count:
        message = f"Shard {index} of {count} does not exist; shards are numbered 0 to {count - 1}."
        raise ConfigError(message, code="FK-NO-SUCH-SHARD")
    return [item for item in media if in_shard(item.media_id, index, count)]


def in_shard(name: str, index: int, count: int) -> bool:
    """Return whether the file of a `media_id` is in shard `index` (from 0) of `count`."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count == index


def _list_local(
    source: str, path: str, outputs: OutputFilter, list_entries: Lister, on_message: Callable[[str], None]
) -> Iterable[MediaFile]:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if MAGIC.search(source):
            return _list_matches(path, outputs, on_message)
        message = f"The input {escape(source)!r} does not exist.{_suggest(path)}"
        raise InputError(message, code="FK-INPUT-MISSING") from None
    if os.path.isfile(path):
        with open_local(path) as stream:
            entries = read_path_list(stream, path)
        return [local_file(path, os.path.basename(path))] if entries is None else list_entries(entries)
    if not os.path.isdir(path):
        return [local_file(path, os.path.basename(path))]  # opening a pipe would wait for a writer
    outputs.check_root(path)
    with os.scandir(path):  # raises if unreadable; an unreadable folder below is a row in the errors table
        media = _walk(FolderWalk(root=path, excludes=outputs.excludes_folder), on_message)
    if not media:
        raise make_no_files_error(source)
    return media


def _walk(walk: FolderWalk, on_message: Callable[[str], None]) -> list[MediaFile]:
    media = list(walk.files())
    if walk.left_out:
        links = counted(walk.left_out, "link")
        on_message(f"Left out: {links} to files that {escape(walk.root)!r} has under their own paths.")
    return media


def _suggest(path: str) -> str:
    try:
        names = os.listdir(os.path.dirname(path))
    except OSError:
        return f" Its folder {escape(os.path.dirname(path))!r} does not exist either; check the path."
    word = os.path.basename(path)
    others = [name for name in names if name != word]  # a link of that name leads nowhere
    close = len(others) <= 10_000 and difflib.get_close_matches(word, others, n=1)
    return did_you_mean(word, close) if close else " Check the path."  # never the whole content of the folder


def _list_matches(pattern: str, outputs: OutputFilter, on_message: Callable[[str], None]) -> Iterable[MediaFile]:
    root = fixed_part(pattern)
    outputs.check_root(root)
    parts = GlobPattern(*pattern[len(root) :].lstrip("/").split("/"))
    walk = FolderWalk(root=root, pattern=parts, excludes=outputs.excludes_below)
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(root):
        if media := _walk(walk, on_message):
            return media
    raise make_no_match_error(pattern)


def fixed_part(source: str) -> str:
    """Return the folder of a pattern before its first wildcard; an existing or plain path as a whole."""
    if is_url(source):
        store = StoreUrl.parse(source)
        magic = None if is_web(source) else MAGIC.search(store.key)
        return store._replace(key=os.path.dirname(store.key[: magic.start()])).url if magic else source
    magic = None if os.path.lexists(source) else MAGIC.search(source)
    return os.path.dirname(source[: magic.start()]) if magic else source


_MARK = "%3A"  # ":" is never escaped in an id, so no file has it


def list_inputs(
    sources: Sequence[str], output: str | None = None, on_message: Callable[[str], None] = lambda _: None
) -> list[MediaFile]:
    """Return every file of the inputs once, sorted by `media_id`; see `list_media`, also for errors.

    `on_message` also gets sentences about files in several inputs.
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
    yield ""
    counts: Counter[str] = Counter()
    for source in sources[1:]:
        place = fixed_part(source if is_url(source) else local_path(source) or source)
        path = place.partition("?")[0] if is_web(place) else StoreUrl.parse(place).inner if is_url(place) else place
        name = media_id(os.path.basename(path.rstrip("/")))  # name of the folder, list or file
        counts[name] += 1
        yield f"{name}{_MARK}{counts[name] if counts[name] > 1 else ''}/"


def _make_comparable(path: str) -> str:
    """Return a path or URL in a form that is the same for every input."""
    return path if is_url(path) else os.path.join(_resolve_folder(os.path.dirname(path)), os.path.basename(path))


@lru_cache(maxsize=1 << 16)
def _resolve_folder(folder: str) -> str:
    try:
        return os.path.realpath(folder)
    except (OSError, ValueError):  # an entry of a list may be no valid path
        return folder
