"""Overlap of boxes, x0 y0 x1 y1 in any unit.

Shapes: p and q boxes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.float64]


def box_iou(a: Boxes, b: Boxes) -> NDArray[np.float64]:
    """Return the IoU, p q, of boxes p 4 and q 4; 0 where neither has an area."""
    sides = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    intersection = sides.clip(0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (a, b)]
    union = areas[0][:, None] + areas[1][None] - intersection
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)
