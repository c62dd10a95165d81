"""Masks of everything in a picture: which points to ask at, and which answers to keep.

The algorithm is that of Segment Anything's automatic mask generator (facebookresearch/sam2,
sam2/automatic_mask_generator.py and sam2/utils/amg.py) with one difference: answers are judged on the model's own grid
of 256 by 256, so that only those that are kept are ever enlarged. Boxes therefore run to the outer edge of a mask's
last cell; the published ones run to its last pixel, which on a coarse grid would make all boxes too small by a cell.
Masks without a cell are never kept.

Shapes: n masks; logits n 256 256 float32, boxes n 4 float64 as x0 y0 x1 y1 in px of the whole frame.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Box = tuple[int, int, int, int]  # x0 y0 x1 y1

NEAR = 20.0  # px of the frame, to an edge: `is_box_near_crop_edge` in sam2/utils/amg.py
ROWS = 1024  # of a matrix of overlaps at once, lest 12,000 masks take gigabytes


@dataclass(frozen=True, kw_only=True)
class Proposals:
    """Masks that were found, on the device, one row each."""

    logits: torch.Tensor
    iou: torch.Tensor  # n float32, expected by the model
    stability: torch.Tensor  # n float32
    boxes: torch.Tensor
    prompts: torch.Tensor  # n int64, number of the prompt
    crops: torch.Tensor  # n int64, number of the crop

    def taken(self, rows: torch.Tensor) -> Proposals:
        """Those that a mask or numbers of rows choose."""
        return Proposals(**{item.name: getattr(self, item.name)[rows] for item in fields(self)})

    @staticmethod
    def joined(parts: Sequence[Proposals]) -> Proposals:
        """All of several, of which there is at least one."""
        import torch

        if len(parts) == 1:
            return parts[0]
        return Proposals(
            **{item.name: torch.cat([getattr(part, item.name) for part in parts]) for item in fields(Proposals)}
        )


def grid(side: int) -> NDArray[np.float32]:
    """The middles of side x side equal cells, row by row: p 2, shares of width and height."""
    middles = (np.arange(side) + 0.5) / side
    x, y = np.meshgrid(middles, middles)
    return np.stack([x, y], axis=-1).reshape(-1, 2).astype(np.float32)


def crops(height: int, width: int, layers: int, overlap: float) -> list[tuple[int, Box]]:
    """The frame, then 4, 16, ... parts of it that overlap: layer and box of each; in sam2/utils/amg.py
    `generate_crop_boxes`. Parts of a tiny frame that would be empty are left out.

    Args:
        height: of the frame, px.
        width: of the frame, px.
        layers: how often to divide.
        overlap: of the parts of the first layer, as a share of the short side.
    """
    found = [(0, (0, 0, width, height))]
    for layer in range(1, layers + 1):
        count = 2**layer
        shared = int(overlap * min(height, width) * (2 / count))
        across, down = (math.ceil((shared * (count - 1) + side) / count) for side in (width, height))
        corners = itertools.product(
            [(across - shared) * i for i in range(count)], [(down - shared) * i for i in range(count)]
        )
        boxes = [(x, y, min(x + across, width), min(y + down, height)) for x, y in corners]
        found += [(layer, box) for box in boxes if box[0] < box[2] and box[1] < box[3]]
    return found


def scaled(box: Box, size: tuple[int, int], other: tuple[int, int]) -> Box:
    """A box of a frame where the frame has another height and width: whole px, at least one."""
    x0, y0, x1, y1 = box
    down, across = (new / old for new, old in zip(other, size, strict=True))
    left, top = min(round(x0 * across), other[1] - 1), min(round(y0 * down), other[0] - 1)
    return left, top, max(left + 1, round(x1 * across)), max(top + 1, round(y1 * down))


def stability(logits: torch.Tensor, threshold: float, offset: float) -> torch.Tensor:
    """IoU of the masks at a threshold higher and lower by `offset`: n float32, 0 where the larger is empty.

    `calculate_stability_score` in sam2/utils/amg.py; the one mask always lies within the other.
    """
    inner = (logits > threshold + offset).sum(dim=(-2, -1))
    outer = (logits > threshold - offset).sum(dim=(-2, -1))
    return inner / outer.clamp(min=1)


def boxes_of(masks: torch.Tensor, crop: Box) -> torch.Tensor:
    """Boxes of the masks (n h w bool) of a crop of the frame; all 0 where a mask is empty."""
    import torch

    x0, y0, x1, y1 = crop
    height, width = masks.shape[1:]
    left, right = _ends(masks.any(dim=1))
    top, bottom = _ends(masks.any(dim=2))
    across, down = (x1 - x0) / width, (y1 - y0) / height
    boxes = torch.stack([x0 + left * across, y0 + top * down, x0 + right * across, y0 + bottom * down], dim=1)
    return boxes * masks.any(dim=2).any(dim=1)[:, None]


def _ends(used: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of rows of bools, where the first is true and behind the last; float64."""
    length = used.shape[1]
    return used.byte().argmax(dim=1).double(), length - used.flip(1).byte().argmax(dim=1).double()


def cut_off(boxes: torch.Tensor, crop: Box, frame: Box) -> torch.Tensor:
    """Whether a box ends at an edge of its crop that is no edge of the frame: n bool."""
    near_crop, near_frame = ((boxes - boxes.new_tensor(edges)).abs() <= NEAR for edges in (crop, frame))
    return (near_crop & ~near_frame).any(dim=1)


def apart(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Non-maximum suppression: numbers of the boxes that are kept, best score first; of equals the first comes first.

    Exactly the greedy rule: a box goes if it overlaps a better one that stays by more than `threshold`. All boxes are
    judged at once, again and again until nothing changes; after k rounds at least the k best are judged for good.

    Args:
        boxes: n 4; those without area overlap none.
        scores: n.
        threshold: an IoU.
    """
    import torch

    order = torch.sort(scores, descending=True, stable=True).indices
    hides = _overlaps(boxes[order], threshold)
    kept = torch.ones(len(order), dtype=torch.bool, device=boxes.device)
    while len(order):
        again = ~(hides & kept[:, None]).any(dim=0)
        if torch.equal(again, kept):
            break
        kept = again
    return order[kept]


def _overlaps(boxes: torch.Tensor, threshold: float) -> torch.Tensor:
    """Whether box i overlaps box j > i by more than the threshold: n n bool."""
    import torch

    count = len(boxes)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(dim=1)
    result = torch.zeros((count, count), dtype=torch.bool, device=boxes.device)
    for start in range(0, count, ROWS):
        part = slice(start, start + ROWS)
        low = torch.maximum(boxes[part, None, :2], boxes[None, :, :2])
        high = torch.minimum(boxes[part, None, 2:], boxes[None, :, 2:])
        shared = (high - low).clamp(min=0).prod(dim=2)
        # an IoU of 0 / 0 is nan, which exceeds nothing
        result[part] = shared / (areas[part, None] + areas[None] - shared) > threshold
    return result.triu(diagonal=1)


def enlarged(logits: torch.Tensor, crop: Box, size: tuple[int, int], threshold: float) -> NDArray[np.bool_]:
    """Masks at a larger size: n h w, laid out column by column, as run lengths are counted.

    Args:
        logits: n 256 256, of a crop.
        crop: its place in px of the result.
        size: height and width of the result.
        threshold: of logits, which are interpolated bilinearly as in sam2/utils/transforms.py `postprocess_masks`.
    """
    import torch
    from torch.nn.functional import interpolate

    (x0, y0, x1, y1), (height, width) = crop, size
    part = interpolate(logits.transpose(1, 2)[:, None], (x1 - x0, y1 - y0), mode="bilinear")[:, 0] > threshold
    if part.shape[1:] != (width, height):
        whole = torch.zeros((len(part), width, height), dtype=torch.bool, device=part.device)
        whole[:, x0:x1, y0:y1] = part
        part = whole
    return part.cpu().numpy().transpose(0, 2, 1)


def cleaned(mask: NDArray[np.bool_], least: int) -> NDArray[np.bool_]:
    """A mask (h w) whose small holes are filled and whose small islands are gone, but for the largest.

    `remove_small_regions` in sam2/utils/amg.py, first for holes, then for islands; neighbours touch at corners too.

    Args:
        mask: is not changed, and is returned itself where there is nothing to do.
        least: px; regions smaller than this are small.
    """
    labels, areas = _regions(~mask)
    if (areas < least).any():
        mask = mask | np.append(False, areas < least)[labels]
    labels, areas = _regions(mask)
    small = areas < least
    if not small.any():
        return mask
    if small.all():
        small[areas.argmax()] = False
    return mask & ~np.append(False, small)[labels]


def _regions(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Numbers of the connected regions, h w from 1 on, 0 where the mask is false; and their areas."""
    pixels = np.ascontiguousarray(mask, np.uint8)
    _, labels, about, _ = cv2.connectedComponentsWithStats(pixels, connectivity=8)
    return labels, about[1:, cv2.CC_STAT_AREA]
