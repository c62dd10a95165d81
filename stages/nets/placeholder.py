"""Faces where nobody looked: what stands in for a detector whose weights are not at hand, so the rest can be timed.

A detector of random weights finds nothing, or thousands of boxes of noise. So every picture is said to hold the same
four faces, upright, of an eighth of its short side. How long a detector takes is not in such a benchmark.
"""

from __future__ import annotations

import numpy as np

from stages.nets.align import SIDE, TEMPLATE
from stages.nets.yunet import Found, Image

FACES = 4
SHARE = 0.125  # of the short side: 160 px of `frame_1280`, a person who stands in front of a camera
_SEED = 0


class Placeholder:
    """A detector's place, taken.

    Args:
        most: faces of one picture.
    """

    def __init__(self, *, most: int) -> None:
        rng = np.random.default_rng(_SEED)
        self._starts = rng.uniform(0, 1, (FACES, 2))  # of the room that a box has
        self._shift = rng.normal(0, 0.01, (FACES, *TEMPLATE.shape))  # so that no two faces are cut alike
        self._most = most

    def __call__(self, image: Image) -> Found:
        """Faces at the same shares of any picture, with a score of 1."""
        height, width = image.shape[:2]
        side = SHARE * min(height, width)
        starts = self._starts * (np.array([width, height]) - side)
        points = starts[:, None] + (TEMPLATE / SIDE + self._shift) * side
        boxes = np.concatenate([starts, starts + side], axis=1)
        found = Found(boxes.astype(np.float32), points.astype(np.float32), np.ones(FACES, np.float32))
        return found.taken(np.arange(min(self._most, FACES)))
