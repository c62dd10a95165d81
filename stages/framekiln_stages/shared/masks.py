"""Masks in tables: COCO's compressed run-length encoding, which pycocotools and every labelling tool read.

    from pycocotools import mask
    pixels = mask.decode(row["masks"][0]["segmentation"])     # h w uint8

A mask stores its own height and width, which may differ from its image's; scale it where they do.

Shapes: n masks, h height and w width of a mask.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Mask = NDArray[np.bool_]  # h w

BOX = pa.struct([(name, pa.float32()) for name in ("x0", "y0", "x1", "y1")])
POINT = pa.struct([("x", pa.float32()), ("y", pa.float32())])
SEGMENTATION = pa.struct([("size", pa.list_(pa.int32(), 2)), ("counts", pa.string())])
Segmentation = Mapping[str, Any]
"""A value of `SEGMENTATION`."""
MASK = pa.struct(
    [
        ("segmentation", SEGMENTATION),  # size is height, width
        ("area", pa.int32()),  # px of the mask's own height and width
        ("box", BOX),  # shares of width and height, 0 to 1
        ("predicted_iou", pa.float32()),  # the model's estimate for its own mask, about 0 to 1
        ("stability_score", pa.float32()),  # IoU of the masks at a higher and a lower threshold, 0 to 1
        ("point", POINT),  # the prompt of this mask, in shares; null where it was a box
    ]
)
"""One mask. Names are those of Segment Anything's records, but for box and point, which are shares as elsewhere."""


def landmark_boxes(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return boxes around the landmarks inside the image: p 4, x0 y0 x1 y1 as fractions of width and height.

    Args:
        points: p k 2 or more, x and y first, as fractions.
    """
    inside = points[:, :, :2].clip(0, 1)
    return np.concatenate([inside.min(axis=1), inside.max(axis=1)], axis=1)


def box_iou(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the IoU, p q, of boxes p 4 and q 4 as x0 y0 x1 y1 in any unit; 0 where neither has an area."""
    sides = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    intersection = sides.clip(0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (a, b)]
    union = areas[0][:, None] + areas[1][None] - intersection
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)


def encode(masks: Sequence[Mask]) -> list[dict[str, Any]]:
    """Return masks of any sizes as values of `SEGMENTATION`."""
    from pycocotools import mask as coco

    codes = [coco.encode(np.asfortranarray(mask, np.uint8)) for mask in masks]
    return [{"size": list(code["size"]), "counts": code["counts"].decode("ascii")} for code in codes]


def decode(segmentation: Segmentation) -> Mask:
    """Return the mask of a value of `SEGMENTATION`."""
    from pycocotools import mask as coco

    return coco.decode(to_coco(segmentation)).astype(bool)


def mask_share(mask: Mapping[str, Any]) -> float:
    """Return the share of its image that a value of `MASK` covers, 0 to 1."""
    height, width = mask["segmentation"]["size"]
    return float(mask["area"]) / max(1, height * width)


def areas_and_boxes(segmentations: Sequence[Segmentation]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Measure masks by their run lengths, without decoding.

    Returns:
        Areas in px (n), and boxes as x0 y0 x1 y1 in px (n 4), all 0 where a mask is empty.
    """
    from pycocotools import mask as coco

    codes = [to_coco(segmentation) for segmentation in segmentations]
    if not codes:
        return np.zeros(0, np.int64), np.zeros((0, 4))
    boxes = coco.toBbox(codes).astype(np.float64)
    boxes[:, 2:] += boxes[:, :2]
    return coco.area(codes).astype(np.int64), boxes


def to_coco(segmentation: Segmentation) -> dict[str, Any]:
    """Return a value of `SEGMENTATION` in the form that pycocotools takes."""
    return {"size": list(segmentation["size"]), "counts": segmentation["counts"].encode("ascii")}
