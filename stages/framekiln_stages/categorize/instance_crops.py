"""Square crops around masks, the input of a model for whole images.

A mask may have another size than the pixels, for example if it was made at full size and the pixels are reduced. Its
box is scaled in whole numbers, its inside by the nearest pixel.

Shapes: h w of the image, a b of the mask, s the side of a crop; pixels RGB uint8.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from framekiln.contract.columns import Image
from framekiln_stages.shared.masks import Mask, Segmentation, areas_and_boxes, decode

Instance = tuple[Image, Segmentation]
"""An image, and a mask of a part of it."""


class Window(NamedTuple):
    """A square in px of the image; it reaches over the edge only where it is larger than the image."""

    top: int
    left: int
    side: int


def mask_box(segmentation: Segmentation) -> tuple[int, int, int, int] | None:
    """Return left, top, right, bottom in px of the mask, the last two just outside; None for an empty mask."""
    left, top, right, bottom = (int(side) for side in areas_and_boxes([segmentation])[1][0])
    return (left, top, right, bottom) if right > left and bottom > top else None


def share_box(segmentation: Segmentation) -> dict[str, float] | None:
    """Return the same box as a value of `framekiln_stages.shared.masks.BOX`."""
    box, (height, width) = mask_box(segmentation), segmentation["size"]
    if box is None:
        return None
    return {"x0": box[0] / width, "y0": box[1] / height, "x1": box[2] / width, "y1": box[3] / height}


def box_area(box: Mapping[str, float]) -> float:
    """Return a box's share of its image."""
    return (box["x1"] - box["x0"]) * (box["y1"] - box["y0"])


def square(segmentation: Segmentation, height: int, width: int, margin: float) -> Window:
    """Return the window around a mask in an image of this size.

    Args:
        segmentation: a mask with at least one pixel.
        height: image height, px.
        width: image width, px.
        margin: around the box on each side, as a share of its longer side; at an edge of the image, the window is
            moved inwards.

    Raises:
        ValueError: the mask is empty.
    """
    box, (rows, columns) = mask_box(segmentation), segmentation["size"]
    if box is None:
        raise ValueError("a mask without pixels has no window")
    left, right = box[0] * width // columns, -(-box[2] * width // columns)
    top, bottom = box[1] * height // rows, -(-box[3] * height // rows)
    longest = max(right - left, bottom - top)
    side = longest + 2 * round(longest * margin)
    return Window(_place_window(top, bottom, side, height), _place_window(left, right, side, width), side)


def cut(image: Image, window: Window, fill: NDArray[np.uint8]) -> Image:
    """Return the window's pixels, s s 3, with `fill` (3) outside the image; a view where nothing is outside."""
    top, left, side = window
    part = image[max(0, top) : top + side, max(0, left) : left + side]
    if part.shape[:2] == (side, side):
        return part
    result = np.empty((side, side, 3), np.uint8)
    result[:] = fill
    down, right = max(0, -top), max(0, -left)
    result[down : down + part.shape[0], right : right + part.shape[1]] = part
    return result


def masked_crop(image: Image, segmentation: Segmentation, margin: float, fill: NDArray[np.uint8]) -> Image:
    """Return the mask's window with `fill` (3) in place of all pixels outside the mask: s s 3.

    If the mask is so thin that it holds the centre of no pixel, the window stays as it is.
    """
    window = square(segmentation, image.shape[0], image.shape[1], margin)
    outside = ~_cut_mask(decode(segmentation), image, window)
    crop = cut(image, window, fill)
    if outside.all():
        return crop
    crop = crop.copy()
    crop[outside] = fill
    return crop


def context_crop(image: Image, segmentation: Segmentation, margin: float, fill: NDArray[np.uint8]) -> Image:
    """Return the mask's window as it is, with `fill` (3) only outside the image: s s 3."""
    return cut(image, square(segmentation, image.shape[0], image.shape[1], margin), fill)


CROPS = {"masked": masked_crop, "context": context_crop}


def _place_window(start: int, stop: int, side: int, length: int) -> int:
    """Return the start of a window around start to stop: inside the image, or over all of it if it is larger."""
    least, most = sorted((0, length - side))
    return min(max((start + stop - side) // 2, least), most)


def _cut_mask(mask: Mask, image: Image, window: Window) -> NDArray[np.bool_]:
    """Return the pixels of the window (s s) with their centres in the mask."""
    nearest, inside_image = [], []
    for start, length, own in zip(window[:2], image.shape[:2], mask.shape, strict=True):
        pixels = np.arange(start, start + window.side)
        inside_image.append((pixels >= 0) & (pixels < length))
        nearest.append(((2 * pixels + 1) * own // (2 * length)).clip(0, own - 1))
    result: NDArray[np.bool_] = mask[np.ix_(*nearest)] & inside_image[0][:, None] & inside_image[1]
    return result
