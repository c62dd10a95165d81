"""Images at power-of-two reductions."""

from __future__ import annotations

import cv2

from pipeline.contract.columns import Image


def use_one_thread() -> None:
    """Limit OpenCV to the calling thread: decode tasks run side by side, one for each core."""
    cv2.setNumThreads(1)


def reduce_by(image: Image, factor: int) -> Image:
    """Return the means of `factor` by `factor` squares.

    Sides are ceil(side / factor); squares beyond the edge repeat its pixels, as in libjpeg.

    Args:
        image: h w 3, uint8.
        factor: a power of two.
    """
    height, width = image.shape[:2]
    if height % factor or width % factor:
        image = cv2.copyMakeBorder(image, 0, -height % factor, 0, -width % factor, cv2.BORDER_REPLICATE)
    while factor > 1:  # by halves: five times as fast as in one step, and equal within one level
        image = cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_AREA)
        factor //= 2
    return image
