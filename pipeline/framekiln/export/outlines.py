"""Outlines of masks along pixel edges, so that filling them gives the same pixels again."""

from typing import NamedTuple

import cv2
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

    OpenCV's contours run through the middles of pixels. Those of a mask of twice the size are a quarter of a pixel
    inside of the edges, so that rounding gives the edges.

    >>> trace(np.ones((2, 3), np.uint8)).parts[0].tolist()
    [[0, 0], [0, 2], [3, 2], [3, 0]]
    """
    outlines = Outlines(parts=[], holes=[])
    _, labels, boxes, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=4)
    order = np.argsort(-boxes[1:, cv2.CC_STAT_AREA], kind="stable") + 1
    for number in order.tolist():
        x, y, width, height = boxes[number, :4].tolist()
        part = (labels[y : y + height, x : x + width] == number).astype(np.uint8)
        twice = part.repeat(2, axis=0).repeat(2, axis=1)
        contours, tree = cv2.findContours(twice, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
        for contour, (*_, parent) in zip(contours, tree[0].tolist(), strict=True):
            ring = (contour[:, 0].astype(np.int64) + 1) // 2 + (x, y)
            ring = ring[(ring != np.roll(ring, 1, axis=0)).any(axis=1)]  # corners that rounding has joined
            (outlines.parts if parent < 0 else outlines.holes).append(ring)
    return outlines


def join(parts: list[Ring]) -> Ring:
    """Return one ring round all parts, with bridges of zero width between their first corners."""
    closed = [np.concatenate([ring, ring[:1]]) for ring in parts]
    back = [ring[:1] for ring in parts[-2::-1]]
    return np.concatenate([*closed, *back]) if len(parts) > 1 else parts[0]
