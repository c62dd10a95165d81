"""Black bars round a picture, as letterboxes and pillarboxes have them.

Shapes: luma uint8 h w (BT.601, codes 0 to 255).
"""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Luma = NDArray[np.uint8]

BAR_CODE = 24  # ffmpeg's cropdetect
BAR_SHARE = 0.98  # of a line's pixels that are dark
BAR_EDGE = 0.5  # share of a bar's length along which the picture begins within two lines


class Bars(NamedTuple):
    """Rows and columns of bars, in px."""

    top: int
    bottom: int
    left: int
    right: int

    def cut(self, luma: Luma) -> Luma:
        """Return the picture inside the bars."""
        height, width = luma.shape
        return luma[self.top : height - self.bottom, self.left : width - self.right]


def find_bars(luma: Luma) -> Bars:
    """Return the black bars round a picture; 0 where a dark edge does not end in a straight line.

    For a film `luma` is the largest value of each pixel over several frames, so that a dark scene is no bar.
    """
    top, bottom = _measure_bars(luma)
    left, right = _measure_bars(cv2.transpose(luma[top : len(luma) - bottom]))
    return Bars(top, bottom, left, right)


def _measure_bars(luma: Luma) -> tuple[int, int]:
    """Return how many lines are bars at the top and at the bottom."""
    shares = (luma > BAR_CODE).mean(axis=1)
    return _count_dark(shares), _count_dark(shares[::-1])


def _count_dark(shares: NDArray[np.float32]) -> int:
    """Return how many lines come before the picture, by the share of pixels above black in each line."""
    dark = int((shares > 1 - BAR_SHARE).argmax())
    return dark if shares[dark : dark + 3].max() >= BAR_EDGE else 0
