"""Masks of a network at the size of a frame, and COCO's compressed run lengths of masks on a device.

Only the pixels at which a run begins leave the device. pycocotools writes the text (common/maskApi.c, `rleToString`):
groups of five bits, the lowest first, each as a printable character; from the third run on the difference from the
length before the last.

Shapes: n masks, h height, w width.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Ints = NDArray[np.int64]
_FIRST = 48  # the character of 0


def upsample_masks(
    logits: torch.Tensor, crop: tuple[int, int, int, int], size: tuple[int, int], threshold: float
) -> torch.Tensor:
    """Return masks at a larger size: n w h bool on the device, column by column, the order of run lengths.

    Logits are interpolated bilinearly, as in sam2/utils/transforms.py `postprocess_masks`.

    Args:
        logits: n 256 256, of a crop.
        crop: its place in px of the result, x0 y0 x1 y1.
        size: height and width of the result.
        threshold: of interpolated logits.
    """
    import torch
    from torch.nn.functional import interpolate

    (x0, y0, x1, y1), (height, width) = crop, size
    part = interpolate(logits.transpose(1, 2)[:, None], (x1 - x0, y1 - y0), mode="bilinear")[:, 0] > threshold
    if part.shape[1:] != (width, height):
        whole = torch.zeros((len(part), width, height), dtype=torch.bool, device=part.device)
        whole[:, x0:x1, y0:y1] = part
        part = whole
    return part


def encode_masks(masks: torch.Tensor) -> list[dict[str, Any]]:
    """Return masks (n w h bool, column by column) as values of `framekiln_stages.shared.masks.SEGMENTATION`."""
    from pycocotools import mask as coco

    count, width, height = masks.shape
    if not count:
        return []
    pixels = width * height
    rows, places = np.divmod(_run_starts(masks.reshape(count, pixels)), pixels)
    edges = np.searchsorted(rows, np.arange(count + 1))
    lengths = [np.diff(places[start:stop], prepend=0, append=pixels) for start, stop in pairwise(edges)]
    codes = coco.frPyObjects([{"size": [height, width], "counts": own} for own in lengths], height, width)
    return [{"size": code["size"], "counts": code["counts"].decode("ascii")} for code in codes]


def decode_starts(counts: str) -> Ints:
    """Return the places at which the runs of a mask begin, without the first run of false pixels, from its text."""
    codes = np.frombuffer(counts.encode("ascii"), np.uint8).astype(np.int64) - _FIRST
    lasts = np.flatnonzero(~codes & 0x20)  # of each number's groups
    firsts = np.append(0, lasts[:-1] + 1)
    shifts = 5 * (np.arange(len(codes)) - np.repeat(firsts, lasts - firsts + 1))
    values = np.add.reduceat((codes & 0x1F) << shifts, firsts)
    values -= ((codes[lasts] & 0x10) > 0) * (np.int64(2) << (shifts[lasts] + 4))
    values[1::2] = values[1::2].cumsum()
    values[2::2] = values[2::2].cumsum()
    return values.cumsum()[:-1]


def _run_starts(pixels: torch.Tensor) -> Ints:
    """Return the positions at which a pixel differs from the one before it, in n masks of equal length after another.

    The first pixel of each mask follows a false one.
    """
    import torch

    changes = torch.cat([pixels[:, :1], pixels[:, 1:] != pixels[:, :-1]], dim=1).flatten()
    if changes.device.type == "cpu":
        return np.flatnonzero(changes.numpy())  # ten times as fast as torch's
    return changes.nonzero()[:, 0].to(torch.int32).cpu().numpy().astype(np.int64)
