"""Crops out of masks, as a model of whole pictures likes them: square, centred on one thing, cut when they are needed.

A mask may have another size than the pixels (made at full size, read with reduced ones, or the other way round): its
box is scaled in whole numbers, its inside by the nearest pixel.

Shapes: h w of the picture, a b of the mask, s the side of a crop; pixels RGB uint8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns import Image
from stages.nets.masks import Mask, decode

Segmentation = Mapping[str, Any]
"""A value of `stages.nets.masks.SEGMENTATION`."""

Instance = tuple[Image, Segmentation]
"""A picture, and a mask of a part of it."""


class Window(NamedTuple):
    """A square in px of the picture; it reaches over the edge only where it is larger than the picture."""

    top: int
    left: int
    side: int


def box_of(segmentation: Segmentation) -> tuple[int, int, int, int] | None:
    """Left, top, right, bottom in px of the mask, the last two just outside; None for a mask without pixels."""
    from pycocotools import mask as coco

    rle = {"size": list(segmentation["size"]), "counts": segmentation["counts"]}
    left, top, width, height = (int(value) for value in coco.toBbox(rle))
    return (left, top, left + width, top + height) if width and height else None


def share_box(segmentation: Segmentation) -> dict[str, float] | None:
    """The same as a value of `stages.nets.masks.BOX`."""
    box, (height, width) = box_of(segmentation), segmentation["size"]
    if box is None:
        return None
    return {"x0": box[0] / width, "y0": box[1] / height, "x1": box[2] / width, "y1": box[3] / height}


def area(x0: float, y0: float, x1: float, y1: float) -> float:
    """A box's share of its picture."""
    return (x1 - x0) * (y1 - y0)


def outline(x0: float, y0: float, x1: float, y1: float) -> list[tuple[float, float, float, float]]:
    """A box's four sides, as `Drawing.lines`."""
    return [(x0, y0, x1, y0), (x1, y0, x1, y1), (x1, y1, x0, y1), (x0, y1, x0, y0)]


def listed(values: pa.StructArray, like: Sequence[Sequence[Any] | None]) -> pa.ListArray:
    """Values in lists as long as `like`'s, null where those are; in all as many."""
    offsets = np.cumsum([0, *(len(items or ()) for items in like)])
    missing = pa.array([items is None for items in like], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=missing)


def square(segmentation: Segmentation, height: int, width: int, margin: float) -> Window:
    """The window around a mask in a picture of this size.

    Args:
        segmentation: a mask with at least one pixel.
        height: of the picture, px.
        width: of the picture, px.
        margin: left free on each side, as a share of the box's longer side; where the picture ends there is more on the
            other side.

    Raises:
        ValueError: the mask is empty.
    """
    box, (rows, columns) = box_of(segmentation), segmentation["size"]
    if box is None:
        raise ValueError("a mask without pixels has no window")
    left, right = box[0] * width // columns, -(-box[2] * width // columns)
    top, bottom = box[1] * height // rows, -(-box[3] * height // rows)
    longest = max(right - left, bottom - top)
    side = longest + 2 * round(longest * margin)
    return Window(_inside(top, bottom, side, height), _inside(left, right, side, width), side)


def cut(image: Image, window: Window, fill: NDArray[np.uint8]) -> Image:
    """The window's pixels, s s 3; `fill` (3) where there is no picture. A view where that is nowhere."""
    top, left, side = window
    part = image[max(0, top) : top + side, max(0, left) : left + side]
    if part.shape[:2] == (side, side):
        return part
    result = np.empty((side, side, 3), np.uint8)
    result[:] = fill
    down, right = max(0, -top), max(0, -left)
    result[down : down + part.shape[0], right : right + part.shape[1]] = part
    return result


def masked(image: Image, segmentation: Segmentation, margin: float, fill: NDArray[np.uint8]) -> Image:
    """The mask's window with everything outside of the mask replaced by `fill` (3): s s 3.

    A mask so thin that none of its pixels is the nearest to one of the picture's leaves the window as it is.
    """
    window = square(segmentation, image.shape[0], image.shape[1], margin)
    outside = ~_seen(decode(segmentation), image, window)
    crop = cut(image, window, fill)
    if outside.all():
        return crop
    crop = crop.copy()
    crop[outside] = fill
    return crop


def context(image: Image, segmentation: Segmentation, margin: float, fill: NDArray[np.uint8]) -> Image:
    """The mask's window as it is, `fill` (3) only where the picture ends: s s 3."""
    return cut(image, square(segmentation, image.shape[0], image.shape[1], margin), fill)


def _inside(start: int, stop: int, side: int, length: int) -> int:
    """Where a window of this side begins around start to stop, moved into the picture or, if longer, over it."""
    least, most = sorted((0, length - side))
    return min(max((start + stop - side) // 2, least), most)


def _seen(mask: Mask, image: Image, window: Window) -> NDArray[np.bool_]:
    """Which pixels of the window (s s) lie in the mask, each by its middle."""
    places, known = [], []
    for start, length, own in zip(window[:2], image.shape[:2], mask.shape, strict=True):
        pixels = np.arange(start, start + window.side)
        known.append((pixels >= 0) & (pixels < length))
        places.append(((2 * pixels + 1) * own // (2 * length)).clip(0, own - 1))
    seen: NDArray[np.bool_] = mask[np.ix_(*places)] & known[0][:, None] & known[1]
    return seen
