"""Detail of pictures that look alike in low frequencies: copies share it, objects before one background do not.

Photos of products on white, or of people in one studio, have nearly the same low frequencies. They differ in the
object's detail. Text over a copy, or a covered corner, leaves the detail elsewhere unchanged. So detail is compared
block by block, and the median decides.

Shapes: p pairs, thumbnails 32 by 32.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln_stages.duplicates.hashes import SIDE, WINDOWS, Bytes

Images = NDArray[np.float32]

# Chosen on 180 photos with copies of seven kinds, and on 60 objects before backgrounds; tried on 170 others
# (docs/measuring/accuracy.md). Whole copies had at least 0.96, and 99 of 100 crops, once aligned, at least 0.6.
SAME, ALIGNED = 0.93, 0.6
SHEAR = 0.12  # largest shear of an alignment: a scan turns by at most 3 degrees; beyond, round objects match others
BLOCK = 4  # px
PLAIN = 0.25  # share of the mean detail: blocks with less in both pictures say nothing
_STEPS = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 30, 1e-4)


def measure_detail(first: Images, second: Images) -> Images:
    """Return the median correlation of both Laplacians (p 32 32) over blocks with detail, -1 to 1."""
    a, b = (_split(_subtract_neighbours(images)) for images in (first, second))
    sizes = [np.sqrt((blocks**2).sum(axis=2)) for blocks in (a, b)]
    cosines = (a * b).sum(axis=2) / np.maximum(sizes[0] * sizes[1], 1e-6)
    shares = [size / np.sqrt((size**2).mean(axis=1, keepdims=True) + 1e-6) for size in sizes]
    has = np.maximum(*shares) > PLAIN
    return np.asarray(np.nanmedian(np.where(has, cosines, np.nan), axis=1), np.float32)


def is_crop(first: Bytes, second: Bytes, window: int) -> bool:
    """Return whether the second picture has the detail of one of the first's `WINDOWS`, aligned by ECC.

    ECC is the enhanced correlation coefficient (Evangelidis and Psarakis 2008), as OpenCV computes it.
    """
    whole, part = (np.ascontiguousarray(image, np.float32) for image in (first, second))
    (top, bottom), (left, right) = WINDOWS[window]
    width, height = right - left, bottom - top
    place = np.array(
        [[width, 0, SIDE * left + (width - 1) / 2], [0, height, SIDE * top + (height - 1) / 2]], np.float32
    )
    try:
        _, found = cv2.findTransformECC(part, whole, place, cv2.MOTION_AFFINE, _STEPS, None, 1)
    except cv2.error:  # it did not converge
        return False
    if abs(found[0, 1]) + abs(found[1, 0]) > SHEAR:
        return False
    how = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    aligned = cv2.warpAffine(whole, found, (SIDE, SIDE), flags=how, borderMode=cv2.BORDER_REPLICATE)
    return bool(measure_detail(aligned[None], part[None])[0] >= ALIGNED)


def _subtract_neighbours(images: Images) -> Images:
    edge = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")
    around = edge[:, :-2, 1:-1] + edge[:, 2:, 1:-1] + edge[:, 1:-1, :-2] + edge[:, 1:-1, 2:]
    return np.asarray(images - around / 4, np.float32)


def _split(images: Images) -> Images:
    """Return the pixels of each block (p blocks pixels)."""
    count = SIDE // BLOCK
    blocks = images.reshape(-1, count, BLOCK, count, BLOCK).transpose(0, 1, 3, 2, 4)
    return blocks.reshape(len(images), count * count, BLOCK * BLOCK)
