"""Grey images for the comparison of flow: fewer pixels, and without smooth light."""

from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

Gray = NDArray[np.uint8]  # h w
Level = TypeVar("Level", np.uint8, np.float32)


def even(image: Gray) -> Gray:
    """Return an image without smooth light: each pixel relative to its surroundings' mean and contrast.

    Windows and the floor of contrast are those of `shots.changes.residual`: 1/18 of the short side.
    """
    levels, window = image.astype(np.float32), (max(7, min(image.shape) // 18 | 1),) * 2
    mean = cv2.blur(levels, window)
    deviation = np.sqrt(np.maximum(cv2.blur(levels * levels, window) - mean * mean, 0) + 30.0)
    return np.asarray(np.clip(128 + 40 * (levels - mean) / deviation, 0, 255), np.uint8)


def reduced(image: NDArray[Level], size: int) -> NDArray[Level]:
    """Return an image with a short side of `size` px, by area means; unchanged if smaller, or for 0."""
    short = min(image.shape)
    if not size or short <= size:
        return image
    height, width = (max(1, round(side * size / short)) for side in image.shape)
    if short >= 2 * size and not (image.shape[0] % 2 or image.shape[1] % 2):  # takes half of the time
        half = (image.shape[1] // 2, image.shape[0] // 2)
        image = np.asarray(cv2.resize(image, half, interpolation=cv2.INTER_AREA), image.dtype)
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), image.dtype)
