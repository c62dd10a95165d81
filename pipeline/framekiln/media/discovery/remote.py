"""Files of buckets and web servers: folders, patterns, single files, and the entries of lists."""

import posixpath
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyarrow import fs

from framekiln.contract.errors import InputError
from framekiln.contract.store_url import StoreUrl
from framekiln.media.discovery.folder_walk import GlobPattern, local_file, unreadable
from framekiln.media.discovery.output_filter import OutputFilter, parents
from framekiln.media.discovery.path_lists import ListedFacts, PathList, read_path_list
from framekiln.media.files import MediaFile, connect, local_path, open_media
from framekiln.media.media_ids import escape, is_url, is_web, media_id, relative_to_common

MAGIC = re.compile(r"[*?[]")
_NOT_COUNTED = "apart from hidden ones and those of outputs"
_AT_ONCE, _BATCH = 32, 4096  # requests to a store, which mostly wait; entries of a list looked up at once
_WORD_S = 10.0  # s between two sentences about a long list
Lister = Callable[[PathList], Iterable[MediaFile]]


def list_entries(on_message: Callable[[str], None], entries: PathList) -> Iterator[MediaFile]:
    """Yield the files of a list. Bucket files without known facts are looked up, many at a time."""
    named = list(zip(entries.paths, relative_to_common(entries.paths), strict=True))
    told = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(named), _BATCH):
            batch = named[start : start + _BATCH]
            found = [_find_entry(*pair, entries.facts) for pair in batch]
            asked = [pair for pair, media in zip(batch, found, strict=True) if media is None]
            answers = pool.map(lambda pair: _look_up_url(*pair), asked)
            yield from (media or next(answers) for media in found)
            if asked and time.monotonic() - told >= _WORD_S:
                told = time.monotonic()
                on_message(f"Looked up {start + len(batch):,} of {len(named):,} entries of the list.")


def _find_entry(path: str, relative: str, facts: Mapping[str, ListedFacts]) -> MediaFile | None:
    """Return an entry that needs no request to a store. A web server is only asked for content."""
    if not is_url(path):
        return local_file(path, relative)
    if path not in facts and not is_web(path):
        return None
    size, mtime_ns = facts.get(path, (0, 0))
    return MediaFile(media_id=media_id(relative), path=path, size=size, mtime_ns=mtime_ns)


def _look_up_url(url: str, relative: str) -> MediaFile:
    try:
        if (path := local_path(url)) is not None:
            return local_file(path, relative)
        system, inner = connect(url)
        return _make_remote_media(system.get_file_info(inner), url, relative)
    except (OSError, ValueError, pa.ArrowException):  # a mistake of one entry; decoding reports it
        return unreadable(url, relative)


def list_remote(source: str, outputs: OutputFilter, list_entries: Lister) -> Iterable[MediaFile]:
    """Return the files of a URL that is not on this disk. Raises InputError; OSError, ValueError, MediaError."""
    if is_web(source):
        file = MediaFile(media_id=media_id(relative_to_common([source])[0]), path=source, size=0, mtime_ns=0)
        with open_media(file) as stream:
            entries = read_path_list(stream, source)
        return [file] if entries is None else list_entries(entries)
    if {"*", "?"}.intersection(StoreUrl.parse(source).inner.partition("/")[0]):
        message = f"A bucket's name cannot be a pattern, as in {escape(source)!r}; write it out."
        raise InputError(message, code="FK-INPUT-NO-MATCH")
    system, inner = connect(source)
    inner = inner.rstrip("/")
    info = system.get_file_info(inner)
    if info.type == fs.FileType.NotFound:
        if MAGIC.search(inner):
            return _list_remote_matches(source, system, inner, outputs)
        message = f"The input {escape(source)!r} does not exist; check the address and the permissions."
        raise InputError(message, code="FK-INPUT-MISSING")
    if info.type == fs.FileType.File:
        with system.open_input_file(inner) as stream:
            entries = read_path_list(stream, source)
        return [_make_remote_media(info, source, info.base_name)] if entries is None else list_entries(entries)
    outputs.check_root(source)
    if media := _list_remote_folder(source, system, inner, outputs, GlobPattern()):
        return media
    raise make_no_files_error(source)


def _list_remote_matches(
    source: str, system: fs.FileSystem, pattern: str, outputs: OutputFilter
) -> Iterable[MediaFile]:
    magic = MAGIC.search(pattern)
    root = posixpath.dirname(pattern[: magic.start() if magic else None])
    parts = GlobPattern(*pattern[len(root) + 1 :].split("/"))
    if media := _list_remote_folder(source, system, root, outputs, parts):
        return media
    raise make_no_match_error(source)


def _list_remote_folder(
    source: str, system: fs.FileSystem, root: str, outputs: OutputFilter, pattern: GlobPattern
) -> list[MediaFile]:
    seen, store = list(_walk_store(system, root, pattern)), StoreUrl.parse(source)
    excluded = outputs.excluded_folders(store.at(root).url, [relative for _, relative, _ in seen])
    return [
        _make_remote_media(item, store.at(item.path).url, relative)
        for item, relative, is_matched in seen
        if is_matched and not (excluded and excluded.intersection(parents(relative)))
    ]


def _make_remote_media(info: fs.FileInfo, url: str, relative: str) -> MediaFile:
    return MediaFile(media_id=media_id(relative), path=url, size=info.size or 0, mtime_ns=info.mtime_ns or 0)


def _walk_store(system: fs.FileSystem, root: str, pattern: GlobPattern) -> Iterator[tuple[fs.FileInfo, str, bool]]:
    """Yield each entry below a store's folder, its path below it, and whether it is a matched file.

    Folders without possible matches are not listed. Everything below `**` or a matched folder is one listing.
    """
    folders = [(root, pattern.start)]
    while folders:
        folder, positions = folders.pop()
        deep = pattern.is_deep(positions)
        for item in system.get_file_info(fs.FileSelector(folder, recursive=deep, allow_not_found=True)):
            after = pattern.advance(positions, *item.path[len(folder) + 1 :].split("/"))
            is_file = item.type == fs.FileType.File
            if after and not (deep or is_file):
                folders.append((item.path, after))
            yield item, item.path[len(root) + 1 :], is_file and pattern.matches(after)


def make_no_files_error(source: str) -> InputError:
    """Return the error of an input without files."""
    message = f"The input {escape(source)!r} has no files ({_NOT_COUNTED}); choose another."
    return InputError(message, code="FK-INPUT-NO-FILES")


def make_no_match_error(pattern: str) -> InputError:
    """Return the error of a pattern."""
    message = f"No file matches {escape(pattern)!r}; check the pattern, and quote it for the shell."
    return InputError(message, code="FK-INPUT-NO-MATCH")
