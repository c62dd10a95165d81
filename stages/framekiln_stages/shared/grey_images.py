"""Grey images for the comparison of flow: fewer pixels, and without smooth light or stripes that move over a scene.

Stripes are bands of a lamp on a rolling shutter, or sun through blinds. Flow follows them as surely as it follows
things. They multiply the light along parallel lines, which things rarely do: most of the change between two frames'
ratio lies on one line of the spectrum. In logarithms light is a sum. So subtracting the mean along such a line removes
it, and the scene's texture stays.

Shapes: h, w of the computed size.
"""

from functools import lru_cache
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


Values = NDArray[np.float32]

# Share of the change on one line of the spectrum from which it counts as stripes. Chosen on six photos with eight kinds
# of stripes of 8 to 60 px of 224 and camera motion up to 5 px: 0.35 to 1.0, at least 0.53 in seven of the kinds.
# Without stripes 0.07 to 0.35, up to 0.48 if 3.5 stops more light clip.
STRIPED = 0.4
SLOWEST, NARROW = 3.0, 1.5  # bins: slower changes are smooth light (`even`); half the width of the line
OFFSET = 8.0  # codes, below which noise decides the logarithm
GAIN = 100.0  # codes of an e-fold
# Least remaining share of the frame with at least this deviation of codes around a pixel (13 of 224 px). Two of the six
# photos have less, 0.55 and 0.63: in their sky flow follows the rest of the stripes, by 1.2 to 3.7 px on average in
# one. The others have at least 0.68, and are off by 0.1 to 0.7 px.
TEXTURED, LEAST_TEXTURE = 0.65, 6.0


def without_stripes(now: Gray, then: Gray, angle: float | None = None) -> tuple[Gray, Gray] | None:
    """Return two frames without the stripes of light that change between them; None without stripes.

    `angle`: of the stripes' normal in rad, if known.
    """
    angle = find_stripes(now, then) if angle is None else angle
    if angle is None:
        return None
    kernel = _draw_line(round(angle, 3), min(now.shape) // 2 | 1)
    weight = _sum_along(np.ones(now.shape, np.float32), kernel)  # less at the border, where nothing is beyond
    return _remove(now, kernel, weight), _remove(then, kernel, weight)


def is_textured(image: Gray) -> bool:
    """Return whether an image without its stripes has enough texture to follow."""
    levels, window = image.astype(np.float32), (max(7, min(image.shape) // 18 | 1),) * 2
    variance = cv2.blur(levels * levels, window) - cv2.blur(levels, window) ** 2
    return float((variance >= LEAST_TEXTURE**2).mean()) >= TEXTURED


def find_stripes(now: Gray, then: Gray) -> float | None:
    """Return the angle of the stripes' normal in rad, x to y; None if the change lies on no single line."""
    small = [cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA) for image in (now, then)]
    one, other = (np.log(image.astype(np.float32) + OFFSET) for image in small)
    taper, down, right, slow = _get_frequencies(*one.shape)
    change = other - one
    power = np.abs(np.fft.fftshift(np.fft.fft2((change - change.mean()) * taper))) ** 2
    power[slow] = 0.0
    total = float(power.sum())
    if total <= 0:
        return None
    row, column = (int(at) for at in np.unravel_index(power[: len(down) // 2 + 1].argmax(), power.shape))
    y = down[row, 0] + _interpolate(power[:, column], row) / len(down)
    x = right[0, column] + _interpolate(power[row], column) / right.size
    near = np.abs(right * y - down * x) < NARROW / min(one.shape) * np.hypot(x, y)
    return float(np.arctan2(y, x)) if float(power[near].sum()) >= STRIPED * total else None


@lru_cache(8)  # shapes of frames
def _get_frequencies(height: int, width: int) -> tuple[Values, Values, Values, NDArray[np.bool_]]:
    # a window, the frequencies of rows (h 1) and columns (1 w) in cycles a px, and where they are slow
    taper = np.outer(np.hanning(height), np.hanning(width)).astype(np.float32)
    down, right = (np.fft.fftshift(np.fft.fftfreq(side)).astype(np.float32) for side in (height, width))
    slow = np.hypot(down[:, None], right[None]) < SLOWEST / min(height, width)
    return taper, down[:, None], right[None], slow


def _interpolate(power: Values, at: int) -> float:
    """Return the distance of a peak from its bin, by a parabola through logarithms, in bins."""
    before, here, after = np.log(power[[at - 1, at, (at + 1) % len(power)]] + 1e-6 * power[at])
    return float(np.clip(0.5 * (before - after) / min(before - 2 * here + after, -1e-6), -0.5, 0.5))


@lru_cache(16)  # a video's stripes keep their angle
def _draw_line(angle: float, side: int) -> Values:
    """Return a kernel (side side) that averages along a stripe."""
    kernel, steps = np.zeros((side + 1, side + 1), np.float32), np.linspace(-1, 1, 4 * side) * (side // 2)
    x, y = side // 2 - steps * np.sin(angle), side // 2 + steps * np.cos(angle)
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    for right in (0, 1):
        for down in (0, 1):
            weight = np.abs(1 - right - (x - left)) * np.abs(1 - down - (y - top))
            np.add.at(kernel, (top + down, left + right), weight)
    return np.asarray(kernel[:side, :side] / kernel[:side, :side].sum(), np.float32)


def _remove(image: Gray, kernel: Values, weight: Values) -> Gray:
    levels = np.log(image.astype(np.float32) + OFFSET)
    return np.asarray(np.clip(128 + GAIN * (levels - _sum_along(levels, kernel) / weight), 0, 255), np.uint8)


def _sum_along(values: Values, kernel: Values) -> Values:
    return np.asarray(cv2.filter2D(values, -1, kernel, borderType=cv2.BORDER_CONSTANT), np.float32)
