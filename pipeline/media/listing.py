"""What a user points at becomes a list of files, fast: none is opened, and what is no media is found when decoded.

    photos/                 a folder: every file below it, hidden ones (".name") aside
    "photos/2024-*/*.jpg"   a glob; a folder that matches counts with all that is below it
    photos/a.jpg            one file
    files.txt               text with a path or URL on each line, relative ones meant from the text file's folder
    files.parquet           a table with a column `path`, likewise
    s3://bucket/photos      any of folder, file and list in an object store; gs:// and file:// too

A single file is told apart by content: one that starts with Parquet's magic number is a table of paths; text of which a
line names an existing file, or is a URL, is a list of paths; anything else is taken for media.

Folders that are outputs of runs are left out (`outputs`), but for what a list, or the fixed part of a pattern, names.
"""

from __future__ import annotations

import difflib

# Names stay strings as the system gave them, and pathlib would make listing several times slower.
# ruff: noqa: PTH100, PTH111, PTH112, PTH116, PTH119, PTH120, PTH123, PTH207, PTH208
import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

import pyarrow as pa
from pyarrow import fs

from pipeline.errors import ConfigError, InputError, did_you_mean
from pipeline.media.lists import read_list
from pipeline.media.names import escape, is_url, media_id, relative_to_common
from pipeline.media.outputs import Outputs, above
from pipeline.media.store import Media, connect, url_below

_MAGIC = re.compile(r"[*?[]")
_UNCOUNTED = "hidden ones and those of outputs do not count"


def list_media(source: str, output: str | None = None, say: Callable[[str], None] = lambda _: None) -> list[Media]:
    """Every file of the input once, sorted by `media_id`.

    A file that a list names and that does not exist, a link that leads nowhere and a folder that may not be entered
    stay in the list with size 0: decoding says of each why it is unreadable, so no file is lost in silence.

    Args:
        source: what a person named.
        output: of the run that reads it; None where nothing is written.
        say: told, in a sentence, which outputs of runs lie in the input and are left out.

    Raises:
        InputError: nothing is there, it may not be read, it holds no file, or it is an output itself.
    """
    outputs = Outputs(source, output)
    try:
        found = list(_remote(source, outputs) if is_url(source) else _local(source, outputs))
    except PermissionError as exc:
        raise InputError(
            f"No permission to read {escape(source)!r}: let this user read it, or choose another input."
        ) from exc
    except (OSError, pa.ArrowException) as exc:
        raise InputError(
            f"Cannot read {escape(source)!r}: {escape(str(exc))}. Check the address and the credentials."
        ) from exc
    if told := outputs.told():
        say(told)
    return sorted({item.media_id: item for item in found}.values(), key=attrgetter("media_id"))


def shard(media: Sequence[Media], index: int, count: int) -> list[Media]:
    """The files of shard `index` (from 0) of `count`, by a hash of the `media_id`: adding a file moves no other."""
    if not 0 <= index < count:
        raise ConfigError(f"Shard {index} of {count} does not exist: shards are numbered 0 to {count - 1}.")
    return [item for item in media if in_shard(item.media_id, index, count)]


def in_shard(name: str, index: int, count: int) -> bool:
    """Whether the file of a `media_id` is of shard `index` (from 0) of `count`."""
    return _hash(name) % count == index


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def _local(source: str, outputs: Outputs) -> Iterable[Media]:
    path = os.path.abspath(os.path.expanduser(source))
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if _MAGIC.search(source):
            return _glob(path, outputs)
        raise InputError(f"There is no {escape(source)!r}.{_near(path)}") from None
    if not os.path.isdir(path):
        return _single(path)
    outputs.check(path)
    with os.scandir(
        path
    ):  # a folder that may not be read at all is the user's mistake, one below it is a line in the errors table
        found = list(_walk(path, path, outputs))
    if not found:
        raise InputError(f"The folder {escape(source)!r} holds no files ({_UNCOUNTED}): choose another.")
    return found


def _near(path: str) -> str:
    try:
        names = os.listdir(os.path.dirname(path))
    except OSError:
        return f" Its folder {escape(os.path.dirname(path))!r} does not exist either; check the path."
    word = os.path.basename(path)
    close = len(names) <= 10_000 and difflib.get_close_matches(word, names, n=1)
    return did_you_mean(word, close) if close else " Check the path."  # a folder's whole content helps nobody


def _single(path: str) -> Iterable[Media]:
    with open(path, "rb") as stream:
        entries = read_list(stream, path)
    return [_media(path, os.path.basename(path))] if entries is None else _listed(entries)


def _walk(root: str, folder: str, outputs: Outputs, around: tuple[tuple[int, int], ...] = ()) -> Iterator[Media]:
    """Files below `folder`; links are followed, except to a folder they lie in (`around`: device and inode of each)."""
    try:
        here = os.stat(folder)
        entries = list(os.scandir(folder))
    except OSError:
        yield Media(media_id=media_id(folder[len(root) :].lstrip("/")), path=folder, size=0, mtime_ns=0)
        return
    inside = (*around, (here.st_dev, here.st_ino))
    if outputs.takes(folder[len(root) :].lstrip("/"), inside[-1], {entry.name for entry in entries}):
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            if entry.is_file() or entry.is_symlink():
                yield _media(entry.path, entry.path[len(root) :].lstrip("/"), entry)
        elif not entry.is_symlink() or _identity(entry) not in inside:
            yield from _walk(root, entry.path, outputs, inside)


def _identity(entry: os.DirEntry[str]) -> tuple[int, int]:
    found = entry.stat()
    return found.st_dev, found.st_ino


def _media(path: str, relative: str, entry: os.DirEntry[str] | None = None) -> Media:
    try:
        found = os.stat(path) if entry is None else entry.stat()
    except (OSError, ValueError):  # a list may name what can be no path
        return Media(media_id=media_id(relative), path=path, size=0, mtime_ns=0)
    return Media(media_id=media_id(relative), path=path, size=found.st_size, mtime_ns=found.st_mtime_ns)


def _glob(pattern: str, outputs: Outputs) -> Iterable[Media]:
    fixed = pattern[: _MAGIC.search(pattern).start()]  # type: ignore[union-attr]
    root = os.path.dirname(fixed)
    outputs.check(root)
    matches = glob.glob(pattern, recursive=True)
    found: list[Media] = []
    for path in matches:
        if outputs.holds(path, root):
            continue
        if not os.path.isdir(path):
            found.append(_media(path, path[len(root) :].lstrip("/")))
        elif "**" not in pattern:
            found.extend(_walk(root, path, outputs))
    if not found:
        raise InputError(
            f"No file matches {escape(pattern)!r}: check the pattern, and quote it so that the shell leaves it alone."
        )
    return found


def _listed(entries: Sequence[str]) -> Iterable[Media]:
    for path, relative in zip(entries, relative_to_common(entries), strict=True):
        if is_url(path):
            system, inner = connect(path)
            yield _remote_media(system.get_file_info(inner), path, relative)
        else:
            yield _media(path, relative)


def _remote(source: str, outputs: Outputs) -> Iterable[Media]:
    system, inner = connect(source)
    inner = inner.rstrip("/")
    info = system.get_file_info(inner)
    if info.type == fs.FileType.NotFound:
        raise InputError(f"There is no {escape(source)!r}: check the address, and that this machine may read it.")
    if info.type == fs.FileType.File:
        with system.open_input_file(inner) as stream:
            entries = read_list(stream, source)
        return [_remote_media(info, source, info.base_name)] if entries is None else _listed(entries)
    outputs.check(source)
    below = [
        (item, item.path[len(inner) :].lstrip("/"))
        for item in system.get_file_info(fs.FileSelector(inner, recursive=True))
    ]
    left_out = outputs.among(source, [relative for _, relative in below])
    found = [
        _remote_media(item, url_below(source, item.path), relative)
        for item, relative in below
        if item.type == fs.FileType.File
        and not any(part.startswith(".") for part in relative.split("/"))
        and not (left_out and left_out.intersection(above(relative)))
    ]
    if not found:
        raise InputError(f"{escape(source)!r} holds no files ({_UNCOUNTED}): choose one with photos or videos.")
    return found


def _remote_media(info: fs.FileInfo, url: str, relative: str) -> Media:
    return Media(media_id=media_id(relative), path=url, size=info.size or 0, mtime_ns=info.mtime_ns or 0)
