"""Decoded images, turned upright and reduced by powers of two."""

import cv2
import numpy as np

from framekiln.contract.columns import Image

TRANSPOSED = (5, 6, 7, 8)  # EXIF orientations that swap height and width


def upright(image: Image, orientation: int) -> Image:
    """Return an image (h w 3) as it is meant to be shown.

    The orientation is EXIF's, 1 to 8 (tag 0x0112; CIPA DC-008, 4.6.5.1.6); anything else counts as 1.
    """
    if orientation in TRANSPOSED:
        image = image.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return np.ascontiguousarray(image)


def reduce_by(image: Image, factor: int) -> Image:
    """Return the means of `factor` by `factor` squares of an image (h w 3), for a power of two.

    Sides are ceil(side / factor); squares beyond the edge repeat its pixels, as in libjpeg.
    """
    height, width = image.shape[:2]
    if height % factor or width % factor:
        image = cv2.copyMakeBorder(image, 0, -height % factor, 0, -width % factor, cv2.BORDER_REPLICATE)
    while factor > 1:  # by halves: five times as fast as in one step, and equal within one level
        image = cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_AREA)
        factor //= 2
    return image
