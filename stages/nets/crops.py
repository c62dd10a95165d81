"""Parts of a frame that a painting network is shown: each painted region with its context, reduced if it is large.

What a region costs depends on its own size, not on the frame's. Sides are rounded up to a grid by showing more of the
frame where there is more, so that crops of many frames have the same size and go through the network together; no
pixel is made up for that.

Shapes: frames h w 3 uint8; masks h w bool; a crop's pixels are those of its `view`, reduced to its `size`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.columns import Image
from stages.nets.masks import Mask
from stages.nets.regions import bounds, feather, spread

Window = tuple[slice, slice]  # rows, columns
Levels = NDArray[np.float32]  # h w 3, 0 to 255

GRID = 64  # px; at 300 px a coarser one of 128 would show half as much again, a finer one makes batches rare


@dataclass(frozen=True, kw_only=True)
class Framing:
    """How much context a region gets, and how large the network sees it."""

    margin: float  # on each side, as a share of the region's longer side
    least: int  # px, of that margin
    longest: int  # px that the network is shown of a side, a multiple of `GRID`


@dataclass(frozen=True, kw_only=True)
class Crop:
    """One part of a frame; the `own` windows of a frame's crops do not overlap, and hold all of its mask."""

    own: Window  # what it answers for
    view: Window  # what is shown
    size: tuple[int, int]  # height and width of what is shown, after reduction


def crops(mask: Mask, how: Framing) -> list[Crop]:
    """The crops of a frame's mask, none for an empty one; regions whose margins meet share one."""
    if not mask.any():
        return []
    inside = spread(bounds(mask), 0, mask.shape)
    top, left = inside[0].start, inside[1].start
    windows = []
    for window in _components(mask[inside].view(np.uint8)):
        moved = slice(window[0].start + top, window[0].stop + top), slice(window[1].start + left, window[1].stop + left)
        longest = max(part.stop - part.start for part in moved)
        windows.append(spread(moved, max(how.least, ceil(how.margin * longest)), mask.shape))
    return [_framed(own, mask.shape, how.longest) for own in _merged(windows, mask.shape)]


def cut(image: Image, mask: Mask, crop: Crop) -> tuple[Image, Mask]:
    """What the network is shown of a frame and of its mask; a reduced pixel is masked where any of it was."""
    pixels, shown = image[crop.view], mask[crop.view]
    if pixels.shape[:2] == crop.size:
        return np.ascontiguousarray(pixels), shown
    size = crop.size[::-1]
    shares = cv2.resize(shown.astype(np.float32), size, interpolation=cv2.INTER_AREA)
    return cv2.resize(np.ascontiguousarray(pixels), size, interpolation=cv2.INTER_AREA), shares > 0


def paste(frame: Image, mask: Mask, crop: Crop, answer: Levels, soft: int) -> None:
    """Put the network's answer into a frame, where the mask is and nowhere else.

    Args:
        frame: changed in place.
        mask: of the frame.
        crop: what was shown.
        answer: of the crop's size.
        soft: px inside the mask's edge over which the frame's own pixels show through.
    """
    full = tuple(part.stop - part.start for part in crop.view)
    if full != crop.size:
        answer = cv2.resize(answer, full[::-1], interpolation=cv2.INTER_CUBIC)
    rows, columns = (
        slice(own.start - view.start, own.stop - view.start) for own, view in zip(crop.own, crop.view, strict=True)
    )
    inside, window = mask[crop.own], spread(crop.own, 1, mask.shape)  # one more, to see where the mask ends
    offset = [own.start - part.start for own, part in zip(crop.own, window, strict=True)]
    alpha = feather(mask[window], soft)[offset[0] :, offset[1] :][: inside.shape[0], : inside.shape[1]]
    share, target = alpha[inside][:, None], frame[crop.own]
    mixed = share * answer[rows, columns][inside] + (1 - share) * target[inside]
    target[inside] = np.rint(mixed.clip(0, 255)).astype(np.uint8)


def _components(mask: NDArray[np.uint8], connectivity: int = 8) -> list[Window]:
    stats = cv2.connectedComponentsWithStats(np.ascontiguousarray(mask), connectivity=connectivity)[2][1:]
    return [(slice(y, y + h), slice(x, x + w)) for x, y, w, h, _ in stats.tolist()]


def _merged(windows: Sequence[Window], shape: tuple[int, ...]) -> list[Window]:
    """Windows that hold the given ones and do not overlap: those that meet become one, until none do."""
    while len(windows) > 1:
        canvas = np.zeros(shape, np.uint8)
        for window in windows:
            canvas[window] = 1
        found = _components(canvas, connectivity=4)
        if len(found) == len(windows):
            break
        windows = found
    return list(windows)


def _framed(own: Window, shape: tuple[int, ...], longest: int) -> Crop:
    factor = max(1.0, max(part.stop - part.start for part in own) / longest)
    axes = [_along(part, side, factor) for part, side in zip(own, shape, strict=True)]
    (rows, height), (columns, width) = axes
    return Crop(own=own, view=(rows, columns), size=(height, width))


def _along(own: slice, side: int, factor: float) -> tuple[slice, int]:
    """What is shown along one axis, and its length after reduction by a factor."""
    length = own.stop - own.start
    target = ceil(length / factor / GRID) * GRID
    shown = min(side, max(length, int(target * factor)))
    start = min(max(0, own.start - (shown - length) // 2), side - shown)
    return slice(start, start + shown), min(target, ceil(shown / factor))
