"""EXIF orientations (tag 0x0112; CIPA DC-008, 4.6.5.1.6), by which photos and videos are turned upright."""

from __future__ import annotations

import numpy as np

from pipeline.contract.columns import Image

TRANSPOSED = (5, 6, 7, 8)  # orientations that swap height and width


def upright(image: Image, orientation: int) -> Image:
    """Return the image as it is meant to be shown.

    Args:
        image: h w 3.
        orientation: 1 to 8; anything else counts as 1.
    """
    if orientation in TRANSPOSED:
        image = image.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return np.ascontiguousarray(image)
