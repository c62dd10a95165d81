"""Formulas for the light of one image.

Pixels are taken for sRGB, and decoded by the curve of IEC 61966-2-1 from tables of 256 values.

Shapes: image uint8 h w 3; luminance uint16 h w, 65535 for linear 1. Angles are in degrees as seen: 0 right, 90 up, from
0 to below 360.
"""

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln.contract import Image

Luminance = NDArray[np.uint16]

_CODES = np.arange(256) / 255
LINEAR = np.where(_CODES <= 0.04045, _CODES / 12.92, ((_CODES + 0.055) / 1.055) ** 2.4)
SIXTH = (LINEAR**6).astype(np.float32)
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])  # IEC 61966-2-1
_PARTS = [np.rint(LINEAR * weight * 65535).astype(np.uint16) for weight in TO_XYZ[1]]
ALL = np.arange(65536)
LEVELS = ALL / 65535
LIGHTNESS = np.where(LEVELS > 216 / 24389, 116 * np.cbrt(LEVELS) - 16, LEVELS * 24389 / 27)  # CIE L*, 0 to 100
LIGHTNESS_SQUARED = LIGHTNESS**2
SHADES = LIGHTNESS.astype(np.float32)
MID_GREY = 0.18  # of linear luminance: the grey card
DARKEST = float(LINEAR[1])  # the least light above none in 8 bits, 9.2 stops under mid-grey
# Parts of a frame in which light is told by shading. Windows have 1/16 of the short side: of 16, 20, 24 and 32 this is
# best before bricks (spheres 0.4 degrees off, and 3 to 10 with the others).
WINDOWS = 16
ROUGH = 1.5  # L*, deviation from a plane: between noise of 2 codes (0.8) and 3; skin with pores and hair has more
SLOPE = 0.2  # L* a px of half the size: 22 over 224 px; noise of 2 codes has 0.01 in a window
SHADED = 0.02  # share of the frame from which shading counts; from twice that on it alone: a sphere of 0.25 has 0.07
SECOND_DIFFERENCE = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], np.float32)


def luminance(image: Image) -> Luminance:
    """Return linear luminance (ITU-R BT.709 weights), 65535 for white."""
    red, green, blue = (cv2.LUT(channel, part) for channel, part in zip(cv2.split(image), _PARTS, strict=True))
    return cv2.add(cv2.add(red, green), blue)


def histogram(light: Luminance) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return rising levels of luminance and the pixels that have them: all levels, or those of a small image alone."""
    if light.size < ALL.size:
        return np.unique(light, return_counts=True)
    return ALL, np.bincount(light.ravel(), minlength=ALL.size)


def stops(level: float) -> float:
    """Return a linear luminance in stops over mid-grey; at least the darkest value of 8 bits."""
    return math.log2(max(level, DARKEST) / MID_GREY)


def exposure(mean: float) -> float | None:
    """Return a mean linear luminance in stops over mid-grey; None for a black image, which has no lowest one.

    A mean may lie far below the darkest value of one pixel, so it has no lower limit.
    """
    return math.log2(mean / MID_GREY) if mean > 0 else None


def largest(image: Image) -> NDArray[np.uint8]:
    """Return the largest of each pixel's three codes (h w)."""
    red, green, blue = cv2.split(image)
    return cv2.max(cv2.max(red, green), blue)


def clipping(image: Image) -> dict[str, float]:
    """Return the shares of pixels within one code of either end of the scale, which is JPEG's rounding error."""
    top = largest(image)
    return {
        "clipped_shadows": np.count_nonzero(top <= 1) / top.size,
        "clipped_highlights": np.count_nonzero(top >= 254) / top.size,
    }


def colour(image: Image) -> dict[str, float | None]:
    """Return the colour temperature in K and the tint (Duv) of the light in the image.

    The light's colour is estimated by shades of grey with the Minkowski norm 6 (Finlayson and Trezzi 2004) over pixels
    that are not clipped. The temperature follows McCamy 1992, the Duv Ohno 2014. Images are white-balanced by the
    camera, so the result is the remaining cast. Both are None:

    - outside the range of McCamy's formula, 2000 to 12500 K;
    - beyond a Duv of 0.05, where CIE 15 defines no colour temperature;
    - where under 1 % of the pixels are clipped neither at white nor at black: a title on black has no light;
    - where the estimate is darker than code 16, since its steps of 6 % would decide the colour.
    """
    top = largest(image)
    unclipped = (top < 254).astype(np.uint8)
    light = np.array(cv2.mean(cv2.LUT(image, SIXTH), unclipped)[:3]) ** (1 / 6)
    unknown: dict[str, float | None] = {"colour_temperature": None, "tint": None}
    if np.count_nonzero((top > 1) & (top < 254)) < 0.01 * top.size or light.max() < LINEAR[16]:
        return unknown
    x, y, _ = TO_XYZ @ light / (TO_XYZ @ light).sum()
    kelvin, tint = temperature(x, y), duv(x, y)
    inside = 2000 <= kelvin <= 12500 and abs(tint) <= 0.05
    return {"colour_temperature": kelvin, "tint": tint} if inside else unknown


def temperature(x: float, y: float) -> float:
    """Return the correlated colour temperature in K of a CIE 1931 chromaticity (McCamy 1992)."""
    n = (x - 0.3320) / (0.1858 - y)
    return 449.0 * n**3 + 3525.0 * n**2 + 6823.3 * n + 5520.33


def duv(x: float, y: float) -> float:
    """Return Duv: the distance from the Planckian locus in CIE 1960 u, v, positive above it (Ohno 2014)."""
    u, v = 4 * x / (12 * y - 2 * x + 3), 6 * y / (12 * y - 2 * x + 3)
    distance = math.hypot(u - 0.292, v - 0.24)
    locus = (-0.00616793, 0.0893944, -0.5179722, 1.5317403, -2.4243787, 1.925865, -0.471106)
    return distance - float(np.polyval(locus, math.acos((u - 0.292) / distance)))


def direction(light: Luminance) -> dict[str, float | None]:
    """Return the direction of the light in degrees, and the share of variance that it explains, 0 to 1.

    Where enough of the frame is shaded smoothly, it is the mean slope of lightness there: a lit subject tells its
    direction wherever it stands and before any even wall. Steps between things do not count. Elsewhere it is the side
    to which the frame gets lighter: see `_fit_plane`. The direction is None where the frame rises by less than 2.3 L*,
    which is the least difference that an eye sees (Mahy et al. 1994).
    """
    across, down, strength = _fit_plane(light)
    height, width = light.shape
    is_flat = abs(across) * width + abs(down) * height < 2.3
    half = (width + 1) // 2, (height + 1) // 2  # a quarter of the work, and half of the noise
    right, below, share = _measure_shading(cv2.resize(np.take(SHADES, light), half, interpolation=cv2.INTER_AREA))
    trust = min(1.0, max(0.0, share / SHADED - 1))
    if trust and (length := math.hypot(right, below)):
        other = max(math.hypot(across, down), 1e-9)
        across, down = (trust * by / length + (1 - trust) * at / other for by, at in ((right, across), (below, down)))
        is_flat = False
    return {
        "light_direction": None if is_flat else turn(math.degrees(math.atan2(-down, across))),
        "light_strength": strength,
    }


def _measure_shading(lightness: NDArray[np.float32]) -> tuple[float, float, float]:
    """Return the mean slope of smooth parts in L* a px, to the right and down, and the share of parts with a slope.

    Each part is a plane in a window of this image, fitted by least squares.
    """
    window = round(min(lightness.shape) / WINDOWS) | 1
    if window < 5 or min(lightness.shape) < 3 * window:
        return 0.0, 0.0, 0.0
    at, level = np.arange(window, dtype=np.float32) - window // 2, lightness - lightness.mean()
    spread, ones = float((at**2).mean()), np.ones(window, np.float32)
    ramp = at / (window**2 * spread)
    inside = (slice(window // 2, -(window // 2)),) * 2
    across, down = (cv2.sepFilter2D(level, -1, *taps)[inside] for taps in ((ramp, ones), (ones, ramp)))
    mean, power = (cv2.blur(values, (window, window))[inside] for values in (level, level * level))
    squares = across * across + down * down
    smooth = power - mean * mean - spread * squares < ROUGH**2
    right, below = (float((slope * smooth).mean()) for slope in (across, down))
    return right, below, float((smooth & (squares > SLOPE**2)).mean())


def _fit_plane(light: Luminance) -> tuple[float, float, float]:
    """Return the slope of the frame to the right and down in L* a px, and its R squared.

    A plane is fitted by least squares to the lightness of cells, at most 32 along the shorter side. The weights are
    round, and fall to 0 at that side's ends. So a plain ramp is exact in a frame of any shape, and so is a subject in
    its middle. It is the image's balance of light, dark trousers included, not a lamp in the room.
    """
    height, width = light.shape
    cell = max(1.0, min(height, width) / 32)
    rows, columns = max(1, round(height / cell)), max(1, round(width / cell))
    cells = LIGHTNESS[cv2.resize(light, (columns, rows), interpolation=cv2.INTER_AREA)]
    x, y = ((np.arange(count) - (count - 1) / 2) * side / count for count, side in ((columns, width), (rows, height)))
    weights = np.clip(1 - (x**2 + y[:, None] ** 2) / (min(height, width) / 2) ** 2, 0, None) ** 0.5
    weights /= max(float(weights.sum()), 1e-9)
    fit = [(float((weights * cells * at).sum()), max(float((weights * at**2).sum()), 1e-9)) for at in (x, y[:, None])]
    (across, wide), (down, high) = ((moment / spread, spread) for moment, spread in fit)
    variance = float((weights * cells**2).sum() - (weights * cells).sum() ** 2)
    return across, down, min(1.0, (across**2 * wide + down**2 * high) / max(variance, 1e-9))


def turn(degrees: float) -> float:
    """Return an angle as a 32-bit float from 0 to below 360."""
    return float(np.float32(degrees % 360.0)) % 360.0


def noise(image: Image) -> float | None:
    """Return the standard deviation of the noise in codes of luma (BT.601), by Immerkaer 1996; None under 3 px.

    It is measured in the middle 512 by 512 pixels. Fine texture counts as noise, so this is an upper bound for a photo.
    """
    top, left = ((side - 512) // 2 if side > 512 else 0 for side in image.shape[:2])
    luma = cv2.cvtColor(image[top : top + 512, left : left + 512], cv2.COLOR_RGB2GRAY)
    if min(luma.shape) < 3:
        return None
    bends = cv2.filter2D(luma, cv2.CV_16S, SECOND_DIFFERENCE)[1:-1, 1:-1]
    return math.sqrt(math.pi / 2) * cv2.norm(bends, cv2.NORM_L1) / (6 * bends.size)
