"""Prompts from true masks: what a person would click, draw or paint on the first frame of an object."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from framekiln.lab.sav.scores import Mask

PromptKind = Literal["points", "box", "mask"]

POINT = 1  # label of a point on the object, as in Segment Anything
CORNERS = (2, 3)  # labels of a box's upper left and lower right corner

Points = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Coordinates as shares of width and height (k 2), and labels (k)."""


def points_of(mask: Mask, kind: PromptKind) -> Points:
    """Return the prompt of a mask with at least one pixel.

    Args:
        mask: true mask, h w.
        kind: points: the pixel that is farthest from the outline, the first of several; box: the corners of the
            smallest box around all pixels.
    """
    if kind == "points":
        depth = distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1]
        row, column = np.unravel_index(int(depth.argmax()), mask.shape)
        corners, labels = [(column + 0.5, row + 0.5)], [POINT]
    else:
        rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
        corners = [(columns[0], rows[0]), (columns[-1] + 1, rows[-1] + 1)]
        labels = list(CORNERS)
    size = np.array(mask.shape[::-1], np.float32)
    return np.array(corners, np.float32) / size, np.array(labels)
