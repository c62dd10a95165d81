"""Bars of one tone round a picture, as letterboxes and pillarboxes have them; most are black.

Shapes: luma uint8 h w (BT.601, codes 0 to 255).
"""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Luma = NDArray[np.uint8]

BAR_CODE = 24  # ffmpeg's cropdetect: codes from the bar's tone
BAR_SHARE = 0.98  # of a line's pixels that have the tone
LEAST = 0.02  # of a side, if the bar is not black: an even line or two at the edge of a wall is none
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


def find_bars(luma: Luma, *, any_tone: bool) -> Bars:
    """Return the bars round a picture; 0 where an even edge does not end in a straight line.

    For a film `luma` is the largest value of each pixel over several frames, so that a dark scene is no bar. Such a
    maximum of a bright scene is of one tone, so there only black bars are told (`any_tone`).
    """
    top, bottom = _measure_bars(luma, any_tone)
    left, right = _measure_bars(cv2.transpose(luma[top : len(luma) - bottom]), any_tone)
    return Bars(top, bottom, left, right)


def _measure_bars(luma: Luma, any_tone: bool) -> tuple[int, int]:
    """Return how many lines are bars at the top and, of the others, at the bottom."""
    top = _count_even(luma, any_tone)
    return top, _count_even(luma[top:][::-1], any_tone)


def _count_even(luma: Luma, any_tone: bool) -> int:
    """Return how many lines of one tone come before the picture."""
    tone = float(np.median(luma[0])) if any_tone else 0.0
    tone = tone if tone > BAR_CODE else 0.0
    if np.mean(cv2.absdiff(luma[0], tone) > BAR_CODE) > 1 - BAR_SHARE:
        return 0
    shares = (cv2.absdiff(luma, tone) > BAR_CODE).mean(axis=1)
    lines = int((shares > 1 - BAR_SHARE).argmax())
    if tone and lines < LEAST * len(luma):
        return 0
    before = luma[max(0, lines - 3)].astype(np.int16) if tone else 0  # a sky that darkens slowly has no edge
    steps = np.abs(luma[lines : lines + 3] - before) > BAR_CODE
    return lines if steps.mean(axis=1).max() >= BAR_EDGE else 0
