"""Crops of a frame for a painting network: each region with its context, reduced if it is large.

A region's cost depends on its own size, not on the frame's. Sides are rounded up to a grid by showing more of the frame
where there is more. Crops of many frames then have the same size and form one batch. No pixels are padded for that.

Shapes: frames h w 3 uint8; masks h w bool; a crop's pixels are those of its `view`, reduced to its `size`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.contract.columns import Image
from stages.inpaint.mask_sources import bounding_window, feather, grow_window
from stages.shared.masks import Mask

Window = tuple[slice, slice]  # rows, columns
Levels = NDArray[np.float32]  # h w 3, 0 to 255

GRID = 64  # px; at 300 px, a grid of 128 would add half as much area again, and a finer one makes batches rare


@dataclass(frozen=True, kw_only=True)
class Framing:
    """Context of a region, and largest size of the network's input."""

    margin: float  # on each side, as a share of the region's longer side
    min_margin: int  # px
    longest: int  # px of the longest side of the network's input, a multiple of `GRID`


@dataclass(frozen=True, kw_only=True)
class Crop:
    """One part of a frame; the `own` windows of a frame's crops do not overlap, and contain all of its mask."""

    own: Window  # the part that is painted and pasted
    view: Window  # the part that the network sees
    size: tuple[int, int]  # height and width of the view, after reduction


def mask_crops(mask: Mask, framing: Framing) -> list[Crop]:
    """Return the crops of a frame's mask, none for an empty one; regions whose margins overlap share a crop."""
    if not mask.any():
        return []
    inside = bounding_window(mask)
    top, left = inside[0].start, inside[1].start
    windows = []
    for rows, columns in _components(mask[inside].view(np.uint8)):
        window = slice(rows.start + top, rows.stop + top), slice(columns.start + left, columns.stop + left)
        longest = max(side.stop - side.start for side in window)
        margin = max(framing.min_margin, ceil(framing.margin * longest))
        windows.append(grow_window(window, margin, mask.shape))
    return [_frame_crop(own, mask.shape, framing.longest) for own in _merge_overlapping(windows, mask.shape)]


def cut(image: Image, mask: Mask, crop: Crop) -> tuple[Image, Mask]:
    """Return the network's input of a frame and of its mask; a reduced pixel is masked where any part of it was."""
    pixels, region = image[crop.view], mask[crop.view]
    if pixels.shape[:2] == crop.size:
        return np.ascontiguousarray(pixels), region
    size = crop.size[::-1]
    shares = cv2.resize(region.astype(np.float32), size, interpolation=cv2.INTER_AREA)
    return cv2.resize(np.ascontiguousarray(pixels), size, interpolation=cv2.INTER_AREA), shares > 0


def paste(frame: Image, mask: Mask, crop: Crop, painted: Levels, soft: int) -> None:
    """Blend the network's result into a frame, within the mask only.

    Args:
        frame: changed in place.
        mask: of the frame.
        crop: its place.
        painted: of the crop's size.
        soft: px inside the mask's edge over which the frame's own pixels show through.
    """
    full = tuple(part.stop - part.start for part in crop.view)
    if full != crop.size:
        painted = cv2.resize(painted, full[::-1], interpolation=cv2.INTER_CUBIC)
    rows, columns = (
        slice(own.start - view.start, own.stop - view.start) for own, view in zip(crop.own, crop.view, strict=True)
    )
    inside, window = mask[crop.own], grow_window(crop.own, 1, mask.shape)  # one more, to include the mask's edge
    offset = [own.start - part.start for own, part in zip(crop.own, window, strict=True)]
    alpha = feather(mask[window], soft)[offset[0] :, offset[1] :][: inside.shape[0], : inside.shape[1]]
    share, target = alpha[inside][:, None], frame[crop.own]
    mixed = share * painted[rows, columns][inside] + (1 - share) * target[inside]
    target[inside] = np.rint(mixed.clip(0, 255)).astype(np.uint8)


def _components(mask: NDArray[np.uint8], connectivity: int = 8) -> list[Window]:
    stats = cv2.connectedComponentsWithStats(np.ascontiguousarray(mask), connectivity=connectivity)[2][1:]
    return [(slice(y, y + h), slice(x, x + w)) for x, y, w, h, _ in stats.tolist()]


def _merge_overlapping(windows: Sequence[Window], shape: tuple[int, ...]) -> list[Window]:
    """Return windows that contain the given ones and do not overlap: those that meet are joined until none do."""
    while len(windows) > 1:
        canvas = np.zeros(shape, np.uint8)
        for window in windows:
            canvas[window] = 1
        merged = _components(canvas, connectivity=4)
        if len(merged) == len(windows):
            break
        windows = merged
    return list(windows)


def _frame_crop(own: Window, shape: tuple[int, ...], longest: int) -> Crop:
    factor = max(1.0, max(part.stop - part.start for part in own) / longest)
    axes = [_frame_axis(part, side, factor) for part, side in zip(own, shape, strict=True)]
    (rows, height), (columns, width) = axes
    return Crop(own=own, view=(rows, columns), size=(height, width))


def _frame_axis(own: slice, side: int, factor: float) -> tuple[slice, int]:
    """Return the view along one axis, and its length after reduction by a factor."""
    length = own.stop - own.start
    target = ceil(length / factor / GRID) * GRID
    visible = min(side, max(length, int(target * factor)))
    start = min(max(0, own.start - (visible - length) // 2), side - visible)
    return slice(start, start + visible), min(target, ceil(visible / factor))
