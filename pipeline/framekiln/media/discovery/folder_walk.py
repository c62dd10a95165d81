"""Files below a folder of this machine that match a pattern, whatever their names, kinds, times and permissions.

Each real folder is visited once, so links in a circle end. A folder is listed under its own path. Only folders outside
the input are listed under a link: the first in alphabetical order. So is a file: a link to one that is listed itself is
left out and counted. Else it would be its file's copy, and a person who deletes copies could delete the file instead.

Every entry that cannot be read stays in the listing with size 0: a broken link, a link to itself, a pipe, a socket, a
device. So does a folder without permission, or deeper than the system's paths. Decoding reports why.
"""

# Names stay strings as the system gave them, and pathlib would make listing several times slower.
# ruff: noqa: PTH116
import heapq
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from framekiln.media.discovery.output_filter import Identity
from framekiln.media.files import MediaFile, as_int64
from framekiln.media.media_ids import is_hidden, media_id
from framekiln.media.sidecars import is_sidecar

_ANY_DEPTH = "**"
Positions = frozenset[int]
"""Positions in a pattern, each the index of its next part; several after `**`, none if nothing fits."""


class GlobPattern:
    """A pattern as its parts between "/"; without parts it matches every file below a folder.

    As in `glob`, `*` and `?` match neither "/" nor a hidden name. A matched folder stands for all files below it,
    unless the pattern has `**`.
    """

    def __init__(self, *parts: str) -> None:
        self._parts = parts if _ANY_DEPTH in parts else (*parts, _ANY_DEPTH)
        self.start = self._add_reached({0})  # positions at the pattern's root

    def advance(self, positions: Positions, *names: str) -> Positions:
        """Return the positions after these names, each below the one before."""
        for name in names:
            parts = [(position, self._parts[position]) for position in positions if position < len(self._parts)]
            kept = {position for position, part in parts if part == _ANY_DEPTH and not is_hidden(name)}
            others = [(position, part) for position, part in parts if is_hidden(part) or not is_hidden(name)]
            next_ones = {position + 1 for position, part in others if part != _ANY_DEPTH and fnmatchcase(name, part)}
            positions = self._add_reached(kept | next_ones)
        return positions

    def matches(self, positions: Positions) -> bool:
        return len(self._parts) in positions

    def is_deep(self, positions: Positions) -> bool:
        """Return whether a folder at these positions may have matches at any depth."""
        return any(self._parts[position : position + 1] == (_ANY_DEPTH,) for position in positions)

    def _add_reached(self, positions: set[int]) -> Positions:
        """Add the positions that `**` reaches without a name."""
        for position, part in enumerate(self._parts):
            if position in positions and part == _ANY_DEPTH:
                positions.add(position + 1)
        return frozenset(positions)


Excludes = Callable[[str, Identity, set[str]], bool]
"""Returns whether a folder is left out, from its path below the root, its identity and its names."""


@dataclass(kw_only=True)
class FolderWalk:
    """One listing of the files below `root` that match a pattern."""

    root: str  # absolute
    excludes: Excludes
    pattern: GlobPattern = field(default_factory=GlobPattern)
    _folders: list[tuple[str, Positions]] = field(default_factory=list, init=False)
    _links: list[tuple[str, list[int]]] = field(default_factory=list, init=False)  # links to folders, as a heap
    _file_links: list[str] = field(default_factory=list, init=False)
    _visited: set[tuple[Identity, Positions]] = field(default_factory=set, init=False)
    _listed: dict[Identity, set[Positions]] = field(default_factory=lambda: defaultdict(set), init=False)
    left_out: int = field(default=0, init=False)  # links to files that are listed themselves

    def files(self) -> Iterator[MediaFile]:
        """Yield each file, links to folders last, then links to files."""
        self._folders.append((self.root, self.pattern.start))
        while self._folders or self._links:
            folder, positions = self._folders.pop() if self._folders else heapq.heappop(self._links)
            yield from self._list_folder(folder, frozenset(positions))
        for link in self._file_links:
            if self._lists_target(link):
                self.left_out += 1
            else:
                yield local_file(link, self._make_relative(link))

    def _list_folder(self, folder: str, positions: Positions) -> Iterator[MediaFile]:
        try:
            status = os.stat(folder)
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError:
            yield unreadable(folder, self._make_relative(folder))
            return
        identity = (status.st_dev, status.st_ino)
        if (identity, positions) in self._visited:
            return
        self._visited.add((identity, positions))
        if self.excludes(self._make_relative(folder), identity, {entry.name for entry in entries}):
            return
        self._listed[identity].add(positions)
        for entry in entries:
            if after := self.pattern.advance(positions, entry.name):
                if not _is_folder(entry):
                    if not self.pattern.matches(after):
                        continue
                    if entry.is_symlink() and not is_sidecar(entry.name):  # photos may share one
                        self._file_links.append(entry.path)
                    else:
                        yield local_file(entry.path, self._make_relative(entry.path))
                elif entry.is_symlink():
                    heapq.heappush(self._links, (entry.path, sorted(after)))
                else:
                    self._folders.append((entry.path, after))

    def _lists_target(self, link: str) -> bool:
        """Return whether the file that a link leads to is listed under its own path."""
        try:
            folder, name = os.path.split(os.path.realpath(link, strict=True))
            status = os.stat(folder)
        except OSError:  # decoding reports why
            return False
        listed = self._listed.get((status.st_dev, status.st_ino), ())
        return any(self.pattern.matches(self.pattern.advance(positions, name)) for positions in listed)

    def _make_relative(self, path: str) -> str:
        return path[len(self.root) :].lstrip("/")


def local_file(path: str, relative: str) -> MediaFile:
    """Return a file by its absolute path; size and time are 0 if it is missing or not a regular file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # an entry of a list may be no valid path
        return unreadable(path, relative)
    if not stat.S_ISREG(status.st_mode):  # a pipe's time changes with each use
        return unreadable(path, relative)
    return MediaFile(media_id=media_id(relative), path=path, size=status.st_size, mtime_ns=as_int64(status.st_mtime_ns))


def unreadable(path: str, relative: str) -> MediaFile:
    """Return an unreadable entry, which decoding will report."""
    return MediaFile(media_id=media_id(relative), path=path, size=0, mtime_ns=0)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a folder without permission
        return False
