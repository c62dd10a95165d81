"""Square crops around masks, cut on the device that has the images: all of nearly one size by the same operations.

They are those of `instance_crops`. An image is uploaded once, whatever the number of its masks. Of a
mask the places travel at which its runs begin, and each pixel of a crop looks up how many of them lie before it.

Shapes: n crops, s side of the model's input, w side of the widest window of a group, r most runs of a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from framekiln.device import Preparation, fit_mixed
from framekiln_stages.categorize.instance_crops import Window, square
from framekiln_stages.shared.device_images import DeviceImages, in_order, numbers_on
from framekiln_stages.shared.masks import Segmentation, decode_starts

if TYPE_CHECKING:
    import torch

WINDOW_BYTES = 16 << 20  # cut at once: with the indices of their pixels 167 MB of a GPU; 64 MB of windows took 536 MB
WIDTHS = 2  # groups of windows for each doubling of their side: at most twice the pixels of a window are cut


@dataclass(frozen=True, kw_only=True)
class WindowCrop:
    """A crop to be cut."""

    owner: int  # number of its image
    segmentation: Segmentation  # of the mask
    window: Window
    masked: bool  # whether pixels outside the mask are filled


def window_crops(
    images: DeviceImages, owners: Sequence[int], segmentations: Sequence[Segmentation], margins: Mapping[str, float]
) -> list[WindowCrop]:
    """Return the crops of masks with pixels, of one kind after the other.

    Args:
        images: on the device.
        owners: the number of each mask's image.
        segmentations: the masks.
        margins: by kind, "masked" or "context"; see `square`.
    """
    return [
        WindowCrop(
            owner=owner,
            segmentation=mask,
            window=square(mask, *images.shapes[owner], margin),
            masked=kind == "masked",
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
        fill: 3, the levels outside the image, and of masked crops outside the mask.
    """
    parts, order = [], []
    for numbers in _group_by_size([crop.window.side for crop in crops]):
        own = [crops[number] for number in numbers]
        shapes = [(crop.window.side, crop.window.side) for crop in own]
        parts.append(fit_mixed(_cut(images, own, fill), shapes, how))
        order.append(np.array(numbers, np.intp))
    return in_order(parts, order)


def _group_by_size(sides: Sequence[int]) -> Iterator[list[int]]:
    """Yield numbers of windows of nearly one size, as many as are cut at once."""
    steps = np.ceil(WIDTHS * np.log2(sides)).astype(int)
    for step in np.unique(steps):
        numbers = np.flatnonzero(steps == step).tolist()
        at_once = max(1, WINDOW_BYTES // (3 * max(sides[number] for number in numbers) ** 2))
        yield from (numbers[start : start + at_once] for start in range(0, len(numbers), at_once))


def _cut(images: DeviceImages, crops: Sequence[WindowCrop], fill: NDArray[np.uint8]) -> torch.Tensor:
    """Return windows in the upper left corners of n w w 3 uint8."""
    import torch

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
        # a mask so thin that it holds the centre of no pixel hides nothing
        shown = inside & (covered | (whole | ~covered.flatten(1).any(dim=1))[:, None, None])
    return found.where(shown[..., None], numbers_on(device, fill))


def _find_inside(segmentations: Sequence[Segmentation], places: torch.Tensor) -> torch.Tensor:
    """Return whether places (n w w, counted column by column) lie in masks, n w w bools."""
    import torch

    starts = [decode_starts(segmentation["counts"]) for segmentation in segmentations]
    table = np.full((len(starts), max(len(own) for own in starts)), np.iinfo(np.int64).max)
    for row, own in zip(table, starts, strict=True):
        row[: len(own)] = own
    before = torch.searchsorted(numbers_on(places.device, table), places.flatten(1), right=True, out_int32=True)
    return (before & 1).bool().view(places.shape)
