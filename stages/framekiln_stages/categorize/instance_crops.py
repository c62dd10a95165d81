"""Square crops around masks, the input of a model for whole images, made on the host or on a device with equal pixels.

A mask may have another size than the pixels, for example if it was made at full size and the pixels are reduced. Its
box is scaled in whole numbers, its inside by the nearest pixel.

On a device all crops of nearly one size are cut by the same operations. An image is uploaded once, whatever the number
of its masks. Of a mask only the starts of its runs are uploaded. Each pixel of a crop counts the starts before it.

Shapes: h w of the image, a b of the mask, s the side of a crop; pixels RGB uint8. On a device n crops, s side of the
model's input, w side of the widest window of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from framekiln.contract import Image
from framekiln.device import Preparation, fit_mixed, in_order, torch
from framekiln_stages.shared.device_images import DeviceImages, numbers_on
from framekiln_stages.shared.masks import Mask, Segmentation, areas_and_boxes, decode, decode_starts

Instance = tuple[Image, Segmentation]
"""An image, and a mask of a part of it."""


class Window(NamedTuple):
    """A square in px of an image; it exceeds the edge only if it is larger than the image."""

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
    """Return the window's pixels, s s 3, with `fill` (3) outside the image; a view if nothing is outside."""
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

    If the mask is too thin to hold any pixel's centre, the window stays as it is.
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
    """Return the start of a window around start to stop: inside the image, or around it if it is larger."""
    least, most = sorted((0, length - side))
    return min(max((start + stop - side) // 2, least), most)


def _cut_mask(mask: Mask, image: Image, window: Window) -> NDArray[np.bool_]:
    """Return the window's pixels (s s) with centres in the mask."""
    nearest, inside_image = [], []
    for start, length, own in zip(window[:2], image.shape[:2], mask.shape, strict=True):
        pixels = np.arange(start, start + window.side)
        inside_image.append((pixels >= 0) & (pixels < length))
        nearest.append(((2 * pixels + 1) * own // (2 * length)).clip(0, own - 1))
    return mask[np.ix_(*nearest)] & inside_image[0][:, None] & inside_image[1]


WINDOW_BYTES = 16 << 20  # bytes cut at once: 167 MB of a GPU with their pixels' indices; 64 MB took 536 MB
WIDTHS = 2  # groups of windows for each doubling of their side: at most twice a window's pixels are cut


@dataclass(frozen=True, kw_only=True)
class WindowCrop:
    """A crop to cut."""

    owner: int  # number of its image
    segmentation: Segmentation  # of the mask
    window: Window
    masked: bool  # whether pixels outside the mask are filled


def window_crops(
    images: DeviceImages, owners: Sequence[int], segmentations: Sequence[Segmentation], margins: Mapping[str, float]
) -> list[WindowCrop]:
    """Return the crops of non-empty masks, of one kind after the other.

    Args:
        images: on the device.
        owners: the number of each mask's image.
        segmentations: the masks.
        margins: by kind, "masked" or "context"; see `square`.
    """
    return [
        WindowCrop(
            owner=owner, segmentation=mask, window=square(mask, *images.shapes[owner], margin), masked=kind == "masked"
        )
        for kind, margin in margins.items()
        for owner, mask in zip(owners, segmentations, strict=True)
    ]


def cut_and_fit(
    images: DeviceImages, crops: Sequence[WindowCrop], how: Preparation, fill: NDArray[np.uint8]
) -> torch.Tensor:
    """Return crops resized for a model, n 3 s s float32, whole levels from 0 to 255.

    Args:
        images: on the device.
        crops: one or more.
        how: the model's preprocessing.
        fill: 3, the levels outside the image, and outside the mask in masked crops.
    """
    parts, order = [], []
    for numbers in _group_by_size([crop.window.side for crop in crops]):
        own = [crops[number] for number in numbers]
        shapes = [(crop.window.side, crop.window.side) for crop in own]
        parts.append(fit_mixed(_cut(images, own, fill), shapes, how))
        order.append(np.array(numbers, np.intp))
    return in_order(parts, order)


def _group_by_size(sides: Sequence[int]) -> Iterator[list[int]]:
    """Yield numbers of windows of nearly one size, as many as fit in one cut."""
    steps = np.ceil(WIDTHS * np.log2(sides)).astype(int)
    for step in np.unique(steps):
        numbers = np.flatnonzero(steps == step).tolist()
        at_once = max(1, WINDOW_BYTES // (3 * max(sides[number] for number in numbers) ** 2))
        yield from (numbers[start : start + at_once] for start in range(0, len(numbers), at_once))


def _cut(images: DeviceImages, crops: Sequence[WindowCrop], fill: NDArray[np.uint8]) -> torch.Tensor:
    """Return windows in the upper left corners of n w w 3 uint8."""
    longest = max(crop.window.side for crop in crops)
    places = [(*images.place(crop.owner), *crop.window, *crop.segmentation["size"]) for crop in crops]
    pixels, device = images.pixels, images.pixels.device
    numbers = numbers_on(device, np.array(places, np.int64)).view(len(crops), 1, 1, 8)
    start, height, width, top, left, side, mask_height, mask_width = numbers.unbind(-1)
    along = torch.arange(longest, device=device)
    y, x = top + along[:, None], left + along
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    found = pixels[start + y.clamp(min=0).minimum(height - 1) * width + x.clamp(min=0).minimum(width - 1)]
    shown = inside
    if any(crop.masked for crop in crops):
        row = ((2 * y + 1) * mask_height // (2 * height)).clamp(min=0).minimum(mask_height - 1)
        column = ((2 * x + 1) * mask_width // (2 * width)).clamp(min=0).minimum(mask_width - 1)
        covered = _find_inside([crop.segmentation for crop in crops], column * mask_height + row)
        covered &= inside & (along < side) & (along[:, None] < side)
        whole = numbers_on(device, np.array([not crop.masked for crop in crops]))
        # a mask too thin to hold any pixel's centre hides nothing
        shown = inside & (covered | (whole | ~covered.flatten(1).any(dim=1))[:, None, None])
    return found.where(shown[..., None], numbers_on(device, fill))


def _find_inside(segmentations: Sequence[Segmentation], places: torch.Tensor) -> torch.Tensor:
    """Return whether places (n w w, counted column by column) lie in masks, n w w bools."""
    starts = [decode_starts(segmentation["counts"]) for segmentation in segmentations]
    table = np.full((len(starts), max(len(own) for own in starts)), np.iinfo(np.int64).max)
    for row, own in zip(table, starts, strict=True):
        row[: len(own)] = own
    before = torch.searchsorted(numbers_on(places.device, table), places.flatten(1), right=True, out_int32=True)
    return (before & 1).bool().view(places.shape)
