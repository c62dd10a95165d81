"""Exclusion of outputs that lie inside the input.

A folder is an output if it holds a run's lease, or three of the names that every run writes. A listing already has a
folder's names, so no file is opened. This run's own output is excluded from the first run on, while it is still empty.
"""

# Names stay strings as the system gave them, and pathlib would make listing several times slower.
# ruff: noqa: PTH111, PTH116
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from framekiln.contract import output_names
from framekiln.contract.errors import InputError
from framekiln.contract.store_url import StoreUrl
from framekiln.media.files import local_path
from framekiln.media.media_ids import escape, is_url

_MIN_MARKS = 3  # one or two of these names may belong to the user
_MAX_NAMED = 3  # folders that a message names
Identity = tuple[int, int]
"""Device and inode."""


def is_output(names: Collection[str]) -> bool:
    """Return whether a folder with these names is the output of a run."""
    return len(output_names.MARKS.intersection(names)) >= _MIN_MARKS or any(
        name.startswith(output_names.LEASE_PREFIX) for name in names
    )


class OutputFilter:
    """The outputs excluded from an input's listing: this run's own, if it writes one, and others."""

    def __init__(self, source: str, output: str | None = None) -> None:
        self._source, self._output = source, output
        self._place = None if output is None else _make_canonical(output)
        self._excluded: set[str] = set()

    def check_root(self, root: str) -> None:
        """Check that this run does not write a folder, given absolute or as a URL.

        Raises InputError: it is the output, or one of the folders that runs write there.
        """
        below = _find_below(self._place, _make_canonical(root))
        if below == "":
            raise InputError(
                f"The input {escape(self._source)!r} and the output are the same folder; choose another --output; "
                "it may be inside the input.",
                code="FK-INPUT-IS-OUTPUT",
            )
        if below is not None and below.split("/")[0] in output_names.FOLDERS:
            raise InputError(
                f"The input {escape(self._source)!r} is written by runs into the output {escape(str(self._output))!r}; "
                "choose another --output.",
                code="FK-INPUT-IS-OUTPUT",
            )

    def excludes_folder(self, relative: str, identity: Identity, names: Collection[str]) -> bool:
        """Return whether a folder with entries of these names is an output, and register its path below the input.

        Raises InputError: it is the whole input.
        """
        excluded = identity == self._own or is_output(names)
        if excluded:
            self._exclude(relative)
        return excluded

    def excludes_below(self, relative: str, identity: Identity, names: Collection[str]) -> bool:
        """Return the same for a pattern's folders; its fixed part is always read."""
        return bool(relative) and self.excludes_folder(relative, identity, names)

    def excluded_folders(self, root: str, paths: Sequence[str]) -> set[str]:
        """Return the outputs among the paths below a store's folder, relative to it, without further requests.

        Raises InputError: it is the whole input.
        """
        folders = _find_outputs(paths)
        own = _find_below(_make_canonical(root), self._place)
        if own and any(path.startswith(f"{own}/") for path in paths):
            folders.add(own)
        outermost = {folder for folder in folders if folders.isdisjoint(parents(folder))}
        for folder in outermost:
            self._exclude(folder)
        return outermost

    def message(self) -> str:
        """Return a sentence on the excluded outputs; empty for none."""
        if not self._excluded:
            return ""
        count = len(self._excluded)
        names = ", ".join([*map(escape, sorted(self._excluded)[:_MAX_NAMED]), *(["..."] if count > _MAX_NAMED else [])])
        return f"Excluded from the input: {count:,} {'output' if count == 1 else 'outputs'} of Framekiln ({names})."

    def _exclude(self, relative: str) -> None:
        if not relative:
            raise InputError(
                f"The input {escape(self._source)!r} is the output of a run; give a folder in it, such as "
                f"{output_names.IMAGES}, or move what the run wrote ({output_names.RUN_RECORD}, "
                f"{output_names.COLUMNS}, {output_names.UNITS}, ...) elsewhere.",
                code="FK-INPUT-IS-OUTPUT",
            )
        self._excluded.add(relative)

    @cached_property
    def _own(self) -> Identity | None:
        """The identity of the output on this disk; None if it does not exist yet, or is elsewhere."""
        try:
            status = os.stat(self._place or "")
        except (OSError, ValueError):
            return None
        return status.st_dev, status.st_ino


def parents(path: str) -> Iterator[str]:
    """Yield the folders of a relative path, the nearest first, without the root ""."""
    while path := path.rpartition("/")[0]:
        yield path


def _find_outputs(paths: Sequence[str]) -> set[str]:
    """Return the outputs among a listing's folders; "" is the listed folder."""
    names: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        parts = path.split("/")
        if parts[-1].startswith(output_names.LEASE_PREFIX):
            names["/".join(parts[:-1])].add(parts[-1])
        if not output_names.MARKS.isdisjoint(parts):
            for place, part in enumerate(parts):
                if part in output_names.MARKS:
                    names["/".join(parts[:place])].add(part)
    return {folder for folder, entries in names.items() if is_output(entries)}


def _make_canonical(place: str) -> str:
    """Return a path or URL in a form that can be compared: its real path on this disk, or its place in a store."""
    path = local_path(place) if is_url(place) else os.path.expanduser(place)
    if path is None:
        store = StoreUrl.parse(place)
        return f"{store.scheme}?{store.query}/{store.inner.strip('/')}"
    return os.path.realpath(path)


def _find_below(outer: str | None, inner: str | None) -> str | None:
    """Return the canonical path from a folder to one inside it: "" if they are the same, None if it is elsewhere."""
    if outer is None or inner is None:
        return None
    outer, inner = f"{outer.rstrip('/')}/", f"{inner.rstrip('/')}/"
    return inner[len(outer) : -1] if inner.startswith(outer) else None
