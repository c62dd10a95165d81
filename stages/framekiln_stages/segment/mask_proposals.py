"""Mask proposals: the points of the grid, scores and boxes of masks, and the choice among them.

The algorithm is that of Segment Anything's automatic mask generator (facebookresearch/sam2,
sam2/automatic_mask_generator.py and sam2/utils/amg.py) with one difference. Masks are scored on the model's own grid of
256 by 256, so that only kept ones are upsampled. So a box ends at the outer edge of the mask's last cell. Published
boxes end at its last pixel; on a coarse grid all boxes would be a cell too small. Empty masks are dropped.

Shapes: n masks; logits n 256 256 float32, boxes n 4 float64 as x0 y0 x1 y1 in px of the whole frame.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln.device import torch
from framekiln_stages.shared.masks import pair_product

Box = tuple[int, int, int, int]  # x0 y0 x1 y1

EDGE_DISTANCE = 20.0  # px of the frame: `is_box_near_crop_edge` in sam2/utils/amg.py
ROUNDS = 8  # rounds of suppression between two waits for a GPU
IOU_ROWS = 1024  # rows of the IoU matrix computed at once: all at once, 12,000 masks would take gigabytes


@dataclass(frozen=True, kw_only=True)
class Proposals:
    """Masks on the device, one row each."""

    logits: torch.Tensor
    iou: torch.Tensor  # n float32, estimated by the model
    stability: torch.Tensor  # n float32
    boxes: torch.Tensor
    prompts: torch.Tensor  # n int64, number of the prompt
    crops: torch.Tensor  # n int64, number of the crop

    def select(self, rows: torch.Tensor) -> Proposals:
        """Return the rows chosen by a boolean mask or by their numbers."""
        if rows.dtype == torch.bool:
            rows = rows.nonzero()[:, 0]  # only once, since a GPU must be waited for
        return Proposals(**{item.name: getattr(self, item.name)[rows] for item in fields(self)})

    @staticmethod
    def concatenate(parts: Sequence[Proposals]) -> Proposals:
        if len(parts) == 1:
            return parts[0]
        return Proposals(
            **{item.name: torch.cat([getattr(part, item.name) for part in parts]) for item in fields(Proposals)}
        )


def point_grid(side: int) -> NDArray[np.float32]:
    """Return the centres of side x side equal cells, row by row: p 2, shares of width and height."""
    centres = (np.arange(side) + 0.5) / side
    x, y = np.meshgrid(centres, centres)
    return np.stack([x, y], axis=-1).reshape(-1, 2).astype(np.float32)


def crop_boxes(height: int, width: int, layers: int, overlap: float) -> list[tuple[int, Box]]:
    """Return the layer and box of the frame, then of 4, 16, ... overlapping parts of it.

    As `generate_crop_boxes` in sam2/utils/amg.py, without a tiny frame's empty parts.

    Args:
        height: frame height, px.
        width: frame width, px.
        layers: number of layers below the frame.
        overlap: of the parts of the first layer, as a share of the short side.
    """
    crops = [(0, (0, 0, width, height))]
    for layer in range(1, layers + 1):
        count = 2**layer
        shared = int(overlap * min(height, width) * (2 / count))
        across, down = (math.ceil((shared * (count - 1) + side) / count) for side in (width, height))
        corners = itertools.product(
            [(across - shared) * i for i in range(count)], [(down - shared) * i for i in range(count)]
        )
        boxes = [(x, y, min(x + across, width), min(y + down, height)) for x, y in corners]
        crops += [(layer, box) for box in boxes if box[0] < box[2] and box[1] < box[3]]
    return crops


def scale_box(box: Box, size: tuple[int, int], new_size: tuple[int, int]) -> Box:
    """Scale a box from one height and width of its frame to another, in whole px, at least one a side."""
    x0, y0, x1, y1 = box
    down, across = (new / old for new, old in zip(new_size, size, strict=True))
    left, top = min(round(x0 * across), new_size[1] - 1), min(round(y0 * down), new_size[0] - 1)
    return left, top, max(left + 1, round(x1 * across)), max(top + 1, round(y1 * down))


def stability_score(logits: torch.Tensor, threshold: float, offset: float) -> torch.Tensor:
    """Return the IoU of masks at thresholds `offset` above and below: n float32, 0 if the larger is empty.

    `calculate_stability_score` in sam2/utils/amg.py: one mask always lies within the other.
    """
    inner = (logits > threshold + offset).sum(dim=(-2, -1))
    outer = (logits > threshold - offset).sum(dim=(-2, -1))
    return inner / outer.clamp(min=1)


def mask_boxes(masks: torch.Tensor, crop: Box) -> torch.Tensor:
    """Return the boxes of the masks (n h w bool) of a crop of the frame, all 0 for an empty mask."""
    x0, y0, x1, y1 = crop
    height, width = masks.shape[1:]
    left, right = _find_extent(masks.any(dim=1))
    top, bottom = _find_extent(masks.any(dim=2))
    across, down = (x1 - x0) / width, (y1 - y0) / height
    boxes = torch.stack([x0 + left * across, y0 + top * down, x0 + right * across, y0 + bottom * down], dim=1)
    return boxes * masks.any(dim=2).any(dim=1)[:, None]


def _find_extent(used: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first true position of each row of bools, and the one after its last; float64."""
    length = used.shape[1]
    return used.byte().argmax(dim=1).double(), length - used.flip(1).byte().argmax(dim=1).double()


def is_near_crop_edge(boxes: torch.Tensor, crop: Box, frame: Box) -> torch.Tensor:
    """Return n bools: the box ends at an edge of its crop that is no edge of the frame."""
    near_crop, near_frame = ((boxes - boxes.new_tensor(edges)).abs() <= EDGE_DISTANCE for edges in (crop, frame))
    return (near_crop & ~near_frame).any(dim=1)


def non_max_suppression(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the numbers of the kept boxes, the best score first, equal scores in their order.

    The greedy rule decides: a box is dropped if it overlaps a better kept box by more than `threshold`.
    All boxes are decided at once, in rounds until nothing changes; after k rounds at least the k best are final. On a
    GPU the check for changes is not made in every round, since it waits.

    `boxes`: n 4; boxes without area overlap none. `scores`: n. `threshold`: IoU.
    """
    order = torch.sort(scores, descending=True, stable=True).indices
    suppresses = _compare_boxes(boxes[order], threshold)
    kept = torch.ones(len(order), dtype=torch.bool, device=boxes.device)
    while len(order):
        for _ in range(1 if boxes.device.type == "cpu" else ROUNDS):
            last, kept = kept, ~(suppresses & kept[:, None]).any(dim=0)
        if torch.equal(last, kept):
            break
    return order[kept]


def _compare_boxes(boxes: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return n n bools: box i overlaps box j > i by more than the threshold."""
    count = len(boxes)
    areas = pair_product(boxes[:, 2:] - boxes[:, :2])
    result = torch.zeros((count, count), dtype=torch.bool, device=boxes.device)
    for start in range(0, count, IOU_ROWS):
        part = slice(start, start + IOU_ROWS)
        low = torch.maximum(boxes[part, None, :2], boxes[None, :, :2])
        high = torch.minimum(boxes[part, None, 2:], boxes[None, :, 2:])
        intersection = pair_product((high - low).clamp(min=0))
        # an IoU of 0 / 0 is NaN, and NaN > threshold is false
        result[part] = intersection / (areas[part, None] + areas[None] - intersection) > threshold
    return result.triu(diagonal=1)


def remove_small_regions(mask: NDArray[np.bool_], min_area: int) -> NDArray[np.bool_]:
    """Fill the small holes of a mask (h w), then drop its small islands; the largest island always stays.

    `remove_small_regions` in sam2/utils/amg.py. Pixels that touch at a corner are connected.

    `mask`: not changed; returned itself if it has no small region. `min_area`: px; smaller regions are small.
    """
    labels, areas = _label_regions(~mask)
    if (areas < min_area).any():
        mask = mask | np.append(False, areas < min_area)[labels]
    labels, areas = _label_regions(mask)
    small = areas < min_area
    if not small.any():
        return mask
    if small.all():
        small[areas.argmax()] = False
    return mask & ~np.append(False, small)[labels]


def _label_regions(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number the connected regions, h w from 1, 0 outside the mask; return the numbers and areas in px."""
    pixels = np.ascontiguousarray(mask, np.uint8)
    _, labels, stats, _ = cv2.connectedComponentsWithStats(pixels, connectivity=8)
    return labels, stats[1:, cv2.CC_STAT_AREA]


# Artificial masks: with random weights hardly any mask passes the thresholds, and later steps would have no work.
# Ellipses: middle and radii in shares of the view's width and height. Together they cover a quarter of it, each 1 to 9
# %, and none touches another or the edge.
SHAPES = (
    (0.25, 0.35, 0.15, 0.20),
    (0.70, 0.30, 0.12, 0.18),
    (0.60, 0.75, 0.20, 0.12),
    (0.15, 0.80, 0.08, 0.08),
    (0.90, 0.60, 0.06, 0.06),
    (0.45, 0.10, 0.10, 0.05),
)
SCORE = 0.9  # predicted IoU; above all shipped thresholds
STEEPNESS = 200.0  # steepness of logits: the outline moves by less than a cell between the thresholds of stability


def dummy_logits(side: int) -> NDArray[np.float32]:
    """Return logits of artificial masks on a square grid (n side side), above 0 inside."""
    centres = (np.arange(side, dtype=np.float32) + 0.5) / side
    x, y = centres[None, None, :], centres[None, :, None]
    shapes = np.array(SHAPES, np.float32).T[:, :, None, None]
    radius = np.hypot((x - shapes[0]) / shapes[2], (y - shapes[1]) / shapes[3])
    return (STEEPNESS * (1 - radius)).astype(np.float32)
