"""Outputs that lie inside the input are no input: this tells them, and leaves them out of a listing.

A folder is an output where a run's lease lies, or three of the names that every run writes. Listing knows the names in
a folder anyway: no file is opened, and none is asked for. This run's own output is left out from the first run on, when
nothing in it tells yet what it is.
"""

from __future__ import annotations

# Names stay strings as the system gave them, and pathlib would make listing several times slower.
# ruff: noqa: PTH111, PTH116, PTH120, PTH208
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from urllib.parse import urlsplit

from pipeline.errors import InputError
from pipeline.media.names import escape, is_url
from pipeline.media.store import connect

_LEASE = "run.lease-"
_MARKS = frozenset({"run.json", "columns", "units", "facts", "frames", "profile"})
_ENOUGH = 3  # of these: any one, and maybe two, may be somebody's own
_WRITTEN = (_MARKS - {"run.json"}) | {"digests", "errors", "images"}
_NAMED = 3  # folders that a sentence names
Identity = tuple[int, int]
"""Device and inode."""


def is_output(names: Collection[str]) -> bool:
    """Whether a folder in which these names lie is the output of a run."""
    return len(_MARKS.intersection(names)) >= _ENOUGH or any(name.startswith(_LEASE) for name in names)


class Outputs:
    """What is left out of one listing: this run's output, and those of others."""

    def __init__(self, source: str, output: str | None = None) -> None:
        """Bind.

        Args:
            source: the input as a person named it.
            output: of the run that lists; None where nothing is written.
        """
        self._source, self._output = source, output
        self._left_out: set[str] = set()
        self._known: dict[str, bool] = {}  # by folder of a pattern's matches, whether it is or lies in an output

    def check(self, root: str) -> None:
        """Make sure that a folder, absolute or a URL, is not what this run writes.

        Raises:
            InputError: it is the output, or lies in what runs write there.
        """
        below = self._below_own(root)
        if below == "":
            raise InputError(
                f"The input {escape(self._source)!r} and the output are one folder, so that tables would lie among the "
                "files that are read; choose another --output, which may be a folder in the input."
            )
        if below is not None and below.split("/")[0] in _WRITTEN:
            raise InputError(
                f"The input {escape(self._source)!r} lies where runs into the output {escape(str(self._output))!r} "
                "write; choose another --output."
            )

    def takes(self, relative: str, identity: Identity, names: Collection[str]) -> bool:
        """Whether a folder of a disk is an output, and so left out.

        Args:
            relative: its path below the input.
            identity: of the folder.
            names: what lies in it.

        Raises:
            InputError: it is the whole input.
        """
        found = identity == self._own or is_output(names)
        if found:
            self._leave_out(relative)
        return found

    def holds(self, path: str, root: str) -> bool:
        """Whether a pattern's match lies in an output below the pattern's fixed part."""
        folder = os.path.dirname(path)
        if len(folder) <= len(root):
            return False
        if folder not in self._known:
            self._known[folder] = self.holds(folder, root) or self._is_one(folder, root)
        return self._known[folder]

    def among(self, root: str, paths: Sequence[str]) -> set[str]:
        """The outputs in a store's listing of a folder; nothing is asked of the store.

        Args:
            root: the folder's URL.
            paths: of all that lies below it, relative to it.

        Raises:
            InputError: it is the whole input.
        """
        folders = _outputs(paths)
        own = self._own_below(root)
        if own and any(path.startswith(f"{own}/") for path in paths):
            folders.add(own)
        found = {folder for folder in folders if folders.isdisjoint(above(folder))}
        for folder in found:
            self._leave_out(folder)
        return found

    def told(self) -> str:
        """What was left out, in a sentence; empty for nothing."""
        if not self._left_out:
            return ""
        count = len(self._left_out)
        names = ", ".join([*map(escape, sorted(self._left_out)[:_NAMED]), *(["..."] if count > _NAMED else [])])
        said = "1 folder that is an output" if count == 1 else f"{count:,} folders that are outputs"
        return f"Left out of the input: {said} of Framemill ({names})."

    def _leave_out(self, relative: str) -> None:
        if not relative:
            raise InputError(
                f"The input {escape(self._source)!r} is itself the output of a run; give the folder in it that is "
                "meant, such as images, or move what the run wrote (run.json, columns, units, ...) elsewhere."
            )
        self._left_out.add(relative)

    @cached_property
    def _place(self) -> str | None:
        """The output's path on this disk; None where it is elsewhere."""
        if self._output is None or (is_url(self._output) and not self._output.startswith("file://")):
            return None
        path = connect(self._output)[1] if is_url(self._output) else self._output
        return os.path.realpath(os.path.expanduser(path))

    @cached_property
    def _own(self) -> Identity | None:
        """Which folder of this disk the output is; None where there is none yet."""
        try:
            found = os.stat(self._place) if self._place is not None else None
        except (OSError, ValueError):
            return None
        return (found.st_dev, found.st_ino) if found is not None else None

    def _below_own(self, root: str) -> str | None:
        """Where a folder lies in the output: "" is the output itself; None where it lies elsewhere."""
        if is_url(root) and not root.startswith("file://"):
            return _below(_in_store(self._output), _in_store(root))
        path = connect(root)[1] if is_url(root) else root
        return _below(self._place, os.path.realpath(path))

    def _own_below(self, root: str) -> str | None:
        """Where the output lies in a folder of a store."""
        if not root.startswith("file://"):
            return _below(_in_store(root), _in_store(self._output))
        return _below(os.path.realpath(connect(root)[1]), self._place)

    def _is_one(self, folder: str, root: str) -> bool:
        try:
            found = os.stat(folder)
            names = os.listdir(folder)
        except OSError:
            return False
        return self.takes(folder[len(root) :].lstrip("/"), (found.st_dev, found.st_ino), frozenset(names))


def above(path: str) -> Iterator[str]:
    """The folders that a path lies in, the nearest first; that it starts from, "", aside."""
    while path := path.rpartition("/")[0]:
        yield path


def _outputs(paths: Sequence[str]) -> set[str]:
    """The folders of a listing that are outputs; "" is the one that was listed."""
    names: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        parts = path.split("/")
        if parts[-1].startswith(_LEASE):
            names["/".join(parts[:-1])].add(parts[-1])
        if not _MARKS.isdisjoint(parts):
            for place, part in enumerate(parts):
                if part in _MARKS:
                    names["/".join(parts[:place])].add(part)
    return {folder for folder, found in names.items() if is_output(found)}


def _in_store(url: str | None) -> str | None:
    """A folder in a bucket, written so that two of them can be compared; None where it is in none."""
    if url is None or not is_url(url):
        return None
    address = urlsplit(url)
    return f"{address.scheme}?{address.query}/{connect(url)[1].strip('/')}"


def _below(outer: str | None, inner: str | None) -> str | None:
    """What leads from one folder to another in it; "" where they are one, None where it lies elsewhere."""
    if outer is None or inner is None:
        return None
    outer, inner = f"{outer.rstrip('/')}/", f"{inner.rstrip('/')}/"
    return inner[len(outer) : -1] if inner.startswith(outer) else None
