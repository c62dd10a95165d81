"""Masks in tables: COCO's compressed run-length encoding, which pycocotools and every labelling tool read.

    from pycocotools import mask
    pixels = mask.decode(row["masks"][0]["segmentation"])     # h w uint8

A mask knows its own height and width, which need not be its picture's: scale it where they differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Mask = NDArray[np.bool_]  # h w

BOX = pa.struct([(name, pa.float32()) for name in ("x0", "y0", "x1", "y1")])
POINT = pa.struct([("x", pa.float32()), ("y", pa.float32())])
SEGMENTATION = pa.struct([("size", pa.list_(pa.int32(), 2)), ("counts", pa.string())])
MASK = pa.struct(
    [
        ("segmentation", SEGMENTATION),  # size is height, width
        ("area", pa.int32()),  # px of the mask's own height and width
        ("box", BOX),  # shares of width and height, 0 to 1
        ("predicted_iou", pa.float32()),  # what the model expects of its own mask, about 0 to 1
        ("stability_score", pa.float32()),  # IoU of the masks at a higher and a lower threshold, 0 to 1
        ("point", POINT),  # the prompt that found it, in shares; null where it was a box
    ]
)
"""One mask. Names are those of Segment Anything's records, but for box and point, which are shares as elsewhere."""


def encode(masks: Sequence[Mask]) -> list[dict[str, Any]]:
    """Masks of any sizes as values of `SEGMENTATION`."""
    from pycocotools import mask as coco

    coded = [coco.encode(np.asfortranarray(one, np.uint8)) for one in masks]
    return [{"size": list(one["size"]), "counts": one["counts"].decode("ascii")} for one in coded]


def decode(segmentation: Mapping[str, Any]) -> Mask:
    """The mask of a value of `SEGMENTATION`."""
    from pycocotools import mask as coco

    return coco.decode({"size": list(segmentation["size"]), "counts": segmentation["counts"]}).astype(bool)


def measures(segmentations: Sequence[Mapping[str, Any]]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Areas in px (n) and boxes as x0 y0 x1 y1 in px (n 4, all 0 where a mask is empty), counted from the runs."""
    from pycocotools import mask as coco

    coded = [{"size": list(one["size"]), "counts": one["counts"].encode("ascii")} for one in segmentations]
    if not coded:
        return np.zeros(0, np.int64), np.zeros((0, 4))
    boxes = coco.toBbox(coded).astype(np.float64)
    boxes[:, 2:] += boxes[:, :2]
    return coco.area(coded).astype(np.int64), boxes
