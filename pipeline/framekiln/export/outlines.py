"""Outlines of masks along pixel edges, so that filling them gives the same pixels again."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from framekiln.export.annotation import Mask

Ring = NDArray[np.int64]  # n 2: corners x, y in px, from 0 to the mask's width and height; closed


class Outlines(NamedTuple):
    """The outlines of one mask."""

    parts: list[Ring]  # largest first; parts that touch only at a corner are separate
    holes: list[Ring]


def trace(mask: Mask) -> Outlines:
    """Return the outlines of a mask (h w).

    >>> trace(np.ones((2, 3), np.uint8)).parts[0].tolist()
    [[0, 0], [3, 0], [3, 2], [0, 2]]
    """
    padded = np.pad(mask.astype(bool), 1)
    outlines = Outlines(parts=[], holes=[])
    for ring in _link(*_find_corners(padded)):
        first = ring[np.lexsort((ring[:, 0], ring[:, 1]))[0]]  # the pixel below and to the right of its first corner
        inside = padded[first[1] + 1, first[0] + 1]
        (outlines.parts if inside else outlines.holes).append(ring)
    outlines.parts.sort(key=_compute_area, reverse=True)
    return outlines


def join(parts: list[Ring]) -> Ring:
    """Return one ring round all parts, with bridges of zero width between their first corners."""
    closed = [np.concatenate([ring, ring[:1]]) for ring in parts]
    back = [ring[:1] for ring in parts[-2::-1]]
    return np.concatenate([*closed, *back]) if len(parts) > 1 else parts[0]


def _find_corners(padded: NDArray[np.bool_]) -> tuple[Ring, NDArray[np.bool_]]:
    """Return corners, and for each whether it is the second of two where pixels touch diagonally (rising to the right).

    Where two pixels touch diagonally there are two corners, one after the other.
    """
    above, below = padded[:-1], padded[1:]
    left_above, right_above, left_below, right_below = above[:, :-1], above[:, 1:], below[:, :-1], below[:, 1:]
    touch = (left_above == right_below) & (right_above == left_below) & (left_above != right_above)
    corners = left_above ^ right_above ^ left_below ^ right_below
    y, x = np.nonzero(corners | touch)
    times = np.where(touch[y, x], 2, 1)
    return np.repeat(np.stack([x, y], axis=1), times, axis=0), np.repeat((touch & right_above)[y, x], times)


def _link(corners: Ring, rising: NDArray[np.bool_]) -> list[Ring]:
    """Return closed rings of corners: neighbours in a row are joined in pairs, and so are neighbours in a column.

    The first of two corners in one place goes left, and also up unless the pixels lie on a rising line.
    """
    count = len(corners)
    places = np.arange(count)
    across, along = np.empty(count, np.int64), np.empty(count, np.int64)
    order = np.lexsort((places, corners[:, 0], corners[:, 1]))
    across[order[::2]], across[order[1::2]] = order[1::2], order[::2]
    order = np.lexsort((np.where(rising, -places, places), corners[:, 1], corners[:, 0]))
    along[order[::2]], along[order[1::2]] = order[1::2], order[::2]
    rings, seen = [], np.zeros(count, bool)
    for start in range(count):
        ring, place = list[int](), start
        while not seen[place]:
            other = int(across[place])
            seen[[place, other]] = True
            ring += [place, other]
            place = int(along[other])
        if ring:
            rings.append(corners[ring])
    return rings


def _compute_area(ring: Ring) -> int:
    x, y = ring[:, 0], ring[:, 1]
    return abs(int((x * np.roll(y, -1) - y * np.roll(x, -1)).sum())) // 2
