"""Crops of a frame for a painting network: each region with its context, reduced if it is large.

A region's cost depends on its own size, not on the frame's. Crops of many frames have the same shape and form one
batch: they show more of the frame than a region needs. With few shapes a network is compiled once for each, before use;
beyond the frame's edge, pixels are mirrored. With many shapes no pixels are added.

Shapes: frames h w 3 uint8; masks h w bool; a crop shows its `view`, reduced to its `size`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln.contract import Image
from framekiln_stages.inpaint.mask_sources import Alpha, bounding_window, feather, grow_window
from framekiln_stages.shared.masks import Mask

Window = tuple[slice, slice]  # rows, columns
Levels = NDArray[np.float32] | NDArray[np.uint8]  # h w 3, 0 to 255

GRID = 64  # px; at 300 px, a grid of 128 would add half the area again, and a finer one makes batches rare


@dataclass(frozen=True, kw_only=True)
class Framing:
    """The context of a region, and the largest input of the network."""

    margin: float  # margin on each side, as a share of the region's longer side
    min_margin: int  # px
    longest: int  # px of the longest side of the network's input, a multiple of `GRID`
    few: bool = False  # whether all crops have one of the `shapes`


@dataclass(frozen=True, kw_only=True)
class Crop:
    """One part of a frame; the `own` windows of a frame's crops do not overlap, and cover all of its mask."""

    own: Window  # the painted and pasted part
    view: Window  # the part that the network sees
    size: tuple[int, int]  # height and width of the view, after reduction
    shape: tuple[int, int]  # of the network's input: the size, or more, with mirrored pixels below and to the right


def mask_crops(mask: Mask, framing: Framing) -> list[Crop]:
    """Return the crops of a frame's mask, none for an empty one; regions with overlapping margins share a crop."""
    if not mask.any():
        return []
    inside = bounding_window(mask)
    top, left = inside[0].start, inside[1].start
    windows = []
    for rows, columns in _find_components(mask[inside].view(np.uint8)):
        window = slice(rows.start + top, rows.stop + top), slice(columns.start + left, columns.stop + left)
        longest = max(side.stop - side.start for side in window)
        margin = max(framing.min_margin, ceil(framing.margin * longest))
        windows.append(grow_window(window, margin, mask.shape))
    return [_make_crop(own, mask.shape, framing) for own in _merge_overlapping(windows, mask.shape)]


def shapes(longest: int) -> list[tuple[int, int]]:
    """Return the heights and widths of few shapes, eight or less, the smallest area first.

    Sides are four steps up to the longest one. A shape's sides differ by at most one step: torch compiles a function
    for eight shapes, and thin regions are rare.
    """
    step = ceil(longest / 4 / GRID) * GRID
    sides = sorted({min(longest, step * i) for i in range(1, 5)})
    pairs = [(side, side) for side in sides]
    for low, high in pairwise(sides[1:]):
        pairs += [(low, high), (high, low)]
    return sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair))


def cut(image: Image, mask: Mask, crop: Crop) -> tuple[Image, Mask]:
    """Return the network's input from a frame and its mask; a reduced pixel is masked if any part of it was."""
    pixels, region = np.ascontiguousarray(image[crop.view]), mask[crop.view]
    if pixels.shape[:2] != crop.size:
        size = crop.size[::-1]
        region = cv2.resize(region.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0
        pixels = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)
    down, right = (whole - side for whole, side in zip(crop.shape, crop.size, strict=True))
    if not (down or right):
        return pixels, region
    # the mask too, or a mirrored part of the object would count as context
    return np.pad(pixels, ((0, down), (0, right), (0, 0)), "symmetric"), np.pad(
        region, ((0, down), (0, right)), "symmetric"
    )


def paste(frame: Image, mask: Mask, crop: Crop, painted: Levels, soft: int) -> None:
    """Blend the network's result into a frame, within the mask only.

    Args:
        frame: changed in place.
        mask: of the frame.
        crop: its place.
        painted: of the crop's shape.
        soft: px inside the mask's edge over which the frame's own pixels show through.
    """
    if not mask[crop.own].any():
        return
    painted = painted[: crop.size[0], : crop.size[1]]
    height, width = (part.stop - part.start for part in crop.view)
    if crop.size != (height, width):
        painted = cv2.resize(np.asarray(painted, np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
    own, place, alpha = _weigh_pasted(mask, crop, soft)
    target = frame[own]
    # where the weight is 0, adding 0 changes nothing
    change = np.subtract(painted[place], target, dtype=np.float32)
    change *= cv2.merge([np.ascontiguousarray(alpha)] * 3)
    change += target
    target[...] = np.rint(change, out=change).clip(0, 255, out=change)


def _weigh_pasted(mask: Mask, crop: Crop, soft: int) -> tuple[Window, Window, Alpha]:
    """Return the bounding window of a crop's own part of a mask, in the frame and in its view, with weights."""
    own = rows, columns = tuple(
        slice(whole.start + part.start, whole.start + part.stop)
        for whole, part in zip(crop.own, bounding_window(mask[crop.own]), strict=True)
    )
    down, across = (
        slice(part.start - view.start, part.stop - view.start) for part, view in zip(own, crop.view, strict=True)
    )
    window = grow_window((rows, columns), 1, mask.shape)  # one more, to include the mask's edge
    top, left = (part.start - start.start for part, start in zip(own, window, strict=True))
    height, width = (part.stop - part.start for part in own)
    return (rows, columns), (down, across), feather(mask[window], soft)[top : top + height, left : left + width]


def _find_components(mask: NDArray[np.uint8], connectivity: int = 8) -> list[Window]:
    stats = cv2.connectedComponentsWithStats(np.ascontiguousarray(mask), connectivity=connectivity)[2][1:]
    return [(slice(y, y + h), slice(x, x + w)) for x, y, w, h, _ in stats.tolist()]


def _merge_overlapping(windows: Sequence[Window], shape: tuple[int, ...]) -> list[Window]:
    """Join overlapping windows, until none overlap."""
    while len(windows) > 1:
        canvas = np.zeros(shape, np.uint8)
        for window in windows:
            canvas[window] = 1
        merged = _find_components(canvas, connectivity=4)
        if len(merged) == len(windows):
            break
        windows = merged
    return list(windows)


def _make_crop(own: Window, frame: tuple[int, ...], framing: Framing) -> Crop:
    lengths = [part.stop - part.start for part in own]
    factor = max(1.0, max(lengths) / framing.longest)
    least = [ceil(length / factor) for length in lengths]
    if framing.few:
        target = next(shape for shape in shapes(framing.longest) if shape[0] >= least[0] and shape[1] >= least[1])
    else:
        target = ceil(least[0] / GRID) * GRID, ceil(least[1] / GRID) * GRID
    axes = [_place_axis(*axis, factor) for axis in zip(own, frame, target, strict=False)]
    (rows, height), (columns, width) = axes
    return Crop(own=own, view=(rows, columns), size=(height, width), shape=target if framing.few else (height, width))


def _place_axis(own: slice, side: int, target: int, factor: float) -> tuple[slice, int]:
    """Return the view along one axis, and its length after reduction by a factor; at most `target`."""
    length = own.stop - own.start
    visible = min(side, max(length, int(target * factor)))
    start = min(max(0, own.start - (visible - length) // 2), side - visible)
    return slice(start, start + visible), min(target, ceil(visible / factor))
