"""Glob patterns, matched name by name on the way down, so that any depth and any circle of links can be listed."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

ANY_DEPTH = "**"
_EVERYTHING = -1  # position of a folder that stands for all files below it
Positions = tuple[int, ...]
"""Sorted places in a pattern, each the number of its next part; more than one after `**`, empty where nothing fits."""


@dataclass(frozen=True)
class GlobPattern:
    """A pattern as its parts between "/"; without parts it matches every file below a folder.

    As in `glob`, `*` and `?` match neither "/" nor a leading ".". A folder that is matched stands for all files below
    it, unless the pattern has `**`.
    """

    parts: tuple[str, ...] = ()

    @property
    def start(self) -> Positions:
        """Positions at the pattern's root."""
        return self._closed({0}) if self.parts else (_EVERYTHING,)

    def advance(self, positions: Positions, name: str) -> Positions:
        """Return the positions after an entry with this name."""
        after: set[int] = set()
        for position in positions:
            if position == _EVERYTHING or self._part(position) == ANY_DEPTH:
                after.update(() if name.startswith(".") else (position,))
            elif _fits(name, self._part(position)):
                after.add(position + 1)
        return self._closed(after)

    def matches(self, positions: Positions) -> bool:
        """Return whether the entry that led to these positions is matched."""
        return _EVERYTHING in positions or len(self.parts) in positions

    def below(self, positions: Positions) -> Positions:
        """Return the positions for the entries of a folder that led to these ones."""
        return (_EVERYTHING,) if self.matches(positions) and ANY_DEPTH not in self.parts else positions

    def _part(self, position: int) -> str | None:
        return self.parts[position] if position < len(self.parts) else None

    def _closed(self, positions: set[int]) -> Positions:
        """Add the positions that `**` reaches without a name."""
        for position in sorted(positions):
            while position >= 0 and self._part(position) == ANY_DEPTH:
                position += 1  # noqa: PLW2901
                positions.add(position)
        return tuple(sorted(positions))


def _fits(name: str, part: str | None) -> bool:
    return part is not None and (part.startswith(".") or not name.startswith(".")) and fnmatchcase(name, part)
