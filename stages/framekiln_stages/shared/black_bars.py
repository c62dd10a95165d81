"""Bars of one tone round a picture, such as letterboxes and pillarboxes; most are black.

Shapes: luma uint8 h w (BT.601, codes 0 to 255).
"""

import math
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Luma = NDArray[np.uint8]

BAR_CODE = 24  # ffmpeg's cropdetect: codes from the bar's tone
EVEN, FAINT = 3, 10  # codes: around a picture of nearly its tone, a bar as even as generated ones ends in a faint step
BAR_SHARE = 0.98  # share of a line's pixels with the tone
LEAST = 0.02  # share of a side, if the bar is not black: an even line or two at a wall's edge is no bar
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

    def is_centred(self, shape: tuple[int, ...]) -> bool:
        """Return whether bars on both sides are alike: a sky that is black for a few frames has no such counterpart."""
        off = (self.top - self.bottom, self.left - self.right)
        return all(abs(lines) <= LEAST * side for lines, side in zip(off, shape, strict=True))


def find_bars(luma: Luma, *, any_tone: bool) -> Bars:
    """Return the bars round a picture; 0 if an even edge does not end in a straight line.

    For a video `luma` is each pixel's largest value over several frames, so that a dark scene is no bar. This maximum
    has one tone in a bright scene, so only black bars are searched there (`any_tone`).
    """
    top, bottom = _measure_bars(luma, any_tone)
    left, right = _measure_bars(cv2.transpose(luma[top : len(luma) - bottom]), any_tone)
    return Bars(top, bottom, left, right)


def _measure_bars(luma: Luma, any_tone: bool) -> tuple[int, int]:
    """Return how many lines are bars at the top and, of the rest, at the bottom."""
    top = _count_even(luma, any_tone)
    return top, _count_even(luma[top:][::-1], any_tone)


def _count_even(luma: Luma, any_tone: bool) -> int:
    """Return how many lines of one tone come before the picture."""
    tone = float(np.median(luma[0]))
    if tone > BAR_CODE and not any_tone:
        return 0
    off = cv2.absdiff(luma, tone)
    least = math.ceil(LEAST * len(luma))
    looks = [(BAR_CODE, least if tone > BAR_CODE else 1)]
    if np.mean(off[:least] > EVEN) <= 1 - BAR_SHARE:
        looks.append((FAINT, least))
    for code, fewest in looks:
        lines = int(((off > code).mean(axis=1) > 1 - BAR_SHARE).argmax())
        before = luma[max(0, lines - 3)].astype(np.int16)  # a slowly darkening sky has no edge
        steps = np.abs(luma[lines : lines + 3] - before) > code
        if lines >= fewest and steps.mean(axis=1).max() >= BAR_EDGE:
            return lines
    return 0
