"""Formulas for the amount and colour of the light of one image.

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
from framekiln_stages.shared.black_bars import find_bars

Luminance = NDArray[np.uint16]

_CODES = np.arange(256) / 255
LINEAR = np.where(_CODES <= 0.04045, _CODES / 12.92, ((_CODES + 0.055) / 1.055) ** 2.4)
SIXTH = (LINEAR**6).astype(np.float32)
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])  # IEC 61966-2-1
_PARTS = [np.rint(LINEAR * weight * 65535).astype(np.uint16) for weight in TO_XYZ[1]]
ALL = np.arange(65536)
LEVELS = ALL / 65535
_CURVE = np.where(LEVELS > 216 / 24389, 116 * np.cbrt(LEVELS) - 16, LEVELS * 24389 / 27)
LIGHTNESS = _CURVE.astype(np.float32)  # CIE L*, 0 to 100
MID_GREY = 0.18  # linear luminance of the grey card
DARKEST = float(LINEAR[1])  # the least light above none in 8 bits, 9.2 stops under mid-grey


def luminance(image: Image) -> Luminance:
    """Return linear luminance (ITU-R BT.709 weights), 65535 for white."""
    red, green, blue = (cv2.LUT(channel, part) for channel, part in zip(cv2.split(image), _PARTS, strict=True))
    return cv2.add(cv2.add(red, green), blue)


def histogram(light: Luminance) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return rising levels of luminance and their pixel counts: all levels, or only those of a small image."""
    if light.size < ALL.size // 8:  # sorting takes less time here than 65,536 counts
        return np.unique(light, return_counts=True)
    return ALL, np.bincount(light.ravel(), minlength=ALL.size)


def stops(level: float) -> float:
    """Return a linear luminance in stops over mid-grey; at least the darkest value of 8 bits."""
    return math.log2(max(level, DARKEST) / MID_GREY)


def exposure(mean: float) -> float | None:
    """Return a mean linear luminance in stops over mid-grey; None for a black image.

    A mean may lie far below the darkest value of one pixel, so it has no lower limit.
    """
    return math.log2(mean / MID_GREY) if mean > 0 else None


def largest(image: Image) -> NDArray[np.uint8]:
    """Return the largest of each pixel's three codes (h w)."""
    red, green, blue = cv2.split(image)
    return cv2.max(cv2.max(red, green), blue)


def clipping(top: NDArray[np.uint8]) -> dict[str, float]:
    """Return the shares of pixels within one code of either end of the scale: JPEG's rounding error.

    Black bars of a letterbox or pillarbox do not count. `top`: as `largest` returns it.
    """
    bars = find_bars(top, any_tone=False)
    top = bars.cut(top) if bars.is_centred(top.shape) else top
    return {
        "clipped_shadows": np.count_nonzero(top <= 1) / top.size,
        "clipped_highlights": np.count_nonzero(top >= 254) / top.size,
    }


def colour(image: Image, top: NDArray[np.uint8]) -> dict[str, float | None]:
    """Return the colour temperature in K and the tint (Duv) of the light in the image.

    The light's colour is estimated by shades of grey with the Minkowski norm 6 (Finlayson and Trezzi 2004) over pixels
    that are not clipped. The temperature follows McCamy 1992, the Duv Ohno 2014. Images are white-balanced by the
    camera, so the result is the remaining cast. Both are None:

    - outside the range of McCamy's formula, 2000 to 12500 K;
    - beyond a Duv of 0.05, where CIE 15 defines no colour temperature;
    - where under 1 % of the pixels are clipped neither at white nor at black, as in a title on black;
    - where the estimate is darker than code 16, since its steps of 6 % would decide the colour.
    """
    unclipped = (top < 254).view(np.uint8)
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
