"""Groups of items with equal keys, such as images of one size."""

from collections.abc import Hashable, Iterable


def indices_by_key(keys: Iterable[Hashable]) -> list[list[int]]:
    """Return the numbers of items with equal keys, in the order in which keys first appear."""
    groups: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return list(groups.values())
