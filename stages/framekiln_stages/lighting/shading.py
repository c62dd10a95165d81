"""Direction of the light in one image: by the shading of a solid, or by the side to which the image gets lighter.

Shapes: lightness float32 h w, CIE L*, 0 to 100; slopes float32 in L* a px, to the right and down. Angles are in degrees
as seen: 0 right, 90 up, from 0 to below 360.

Thresholds were chosen on 600 rendered pictures, and tried on 600 others before other photos. They show spheres and
heads of 0.08 to 0.35 of the short side, lit from any side. Behind these are ten walls, and frames have four shapes.
"""

import math
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln_stages.shared.grey_images import reduced

Singles = NDArray[np.float32]
Mask = NDArray[np.uint8]  # 0 or 1

SIDE = 112  # px, the short side in which solids are searched: half of frame_224, so a quarter of the work
WINDOW = 5  # px there: smaller windows see noise, larger ones lose spheres of a radius of 0.08
ROUGH = 1.0  # L*, deviation from a plane in a window: noise of 2 codes has 0.4, a step of 4 L* has more
EVEN = 0.3, 2.5  # the same for a wall: at least, and in medians of the frame. 1.0 lets light rims run into light walls
LEAST_AREA = 20  # px of a solid; 12 to 40 give the same
LEAST_SLOPE = 0.2  # L* a px, the mean of a solid; at 0.1 some spots of a blurred photo pass
ROUND = 0.96  # area relative to the ellipse of the same moments; 0.95 to 0.98 give the same, and a square has 0.955
NARROWEST = 0.75  # short axis by long axis of that ellipse: parts of faces are longer, and 7 to 62 degrees off
LEAST_STRENGTH = 0.5  # for a frame without a solid: it gets lighter to one side more than it changes otherwise
AGREED = 10.0  # degrees between that side and the slopes of its smooth parts
# Degrees between the slopes of a solid and the side to which it gets lighter as a whole. 268 spheres have at most 14.
# 13 photographed heads, cut out round and lit by arithmetic, with slopes 35 to 91 off, have 65 to 178.
SOLID_AGREED = 30.0
SEEN = 0.004  # L* a px, the least mean that counts
MOSTLY = 0.5  # share of the frame: if more is smooth and gets lighter to no side, no lamp is seen
VISIBLE = 2.3  # L*, the least difference that an eye sees (Mahy et al. 1994)
_AT, _ONES = np.arange(WINDOW, dtype=np.float32) - WINDOW // 2, np.ones(WINDOW, np.float32)
_SPREAD = float((_AT**2).mean())
_RAMP = _AT / (WINDOW**2 * _SPREAD)


def direction(lightness: Singles) -> dict[str, float | None]:
    """Return the direction of the light in degrees, and the share of variance that one side explains, 0 to 1.

    A solid is a round part with an edge all round; its slopes show the light wherever it stands and before any wall. A
    frame without one is lit from the side to which it gets lighter (see `_fit_plane`). This must be most of its
    variation, and its smooth parts must get lighter to that side too. Otherwise the direction is None. Examples: a
    head, since hair, brow and chin are no known solid; photos of things; a frame that rises by less than `VISIBLE`.
    """
    small = reduced(lightness, SIDE)
    across, down, strength = _fit_plane(small)
    slopes = _measure_slopes(small) if min(small.shape) >= 3 * WINDOW else None
    side = None if slopes is None else _find_solid(*slopes)
    rise = abs(across) * small.shape[1] + abs(down) * small.shape[0]
    if side is None and strength >= LEAST_STRENGTH and rise >= VISIBLE:
        side = _to_angle(across, down)
        if slopes is not None and _contradicts(side, *slopes[:3]):
            side = None
    return {"light_direction": None if side is None or math.isnan(side) else side, "light_strength": strength}


def _contradicts(side: float, right: Singles, down: Singles, error: Singles) -> bool:
    """Return whether the smooth parts get lighter to another side, or to none if they are most of the frame."""
    smooth = (error < ROUGH**2).astype(np.float32) / error.size
    own = [float((slope * smooth).sum()) for slope in (right, down)]
    if math.hypot(*own) <= SEEN:
        return float(smooth.sum()) > MOSTLY
    return _compare_angles(_to_angle(*own), side) > AGREED


def _compare_angles(one: float, other: float) -> float:
    return abs((one - other + 180) % 360 - 180)


def _to_angle(right: float, down: float) -> float:
    """Return the angle of a slope as a 32-bit float from 0 to below 360."""
    return float(np.float32(math.degrees(math.atan2(-down, right)) % 360.0)) % 360.0


def _measure_slopes(lightness: Singles) -> tuple[Singles, Singles, Singles, Singles]:
    """Return the slopes of a plane in each window, by least squares, its mean squared deviation, and the level."""
    level = lightness - lightness.mean()
    inside = (slice(WINDOW // 2, -(WINDOW // 2)),) * 2
    right, down = (cv2.sepFilter2D(level, -1, *taps)[inside] for taps in ((_RAMP, _ONES), (_ONES, _RAMP)))
    mean, power = (cv2.blur(values, (WINDOW, WINDOW))[inside] for values in (level, level * level))
    return right, down, power - mean * mean - _SPREAD * (right * right + down * down), lightness[inside]


def _find_solid(right: Singles, down: Singles, error: Singles, level: Singles) -> float | None:
    """Return the direction of the light on the largest solid.

    It is a smooth part, or the whole area that the wall behind it does not reach, since highlights and edges of shadows
    divide it.
    """
    smooth = (error < ROUGH**2).view(np.uint8)
    found = _find_round(smooth, smooth, right, down, level)
    if found is not None:
        return found
    limit = min(ROUGH**2, max(EVEN[0] ** 2, EVEN[1] ** 2 * float(np.median(error[::4, ::4]))))
    count, parts = cv2.connectedComponents((error < limit).view(np.uint8), connectivity=4, ltype=cv2.CV_16U)
    walls = _cut_by_edge(parts, count)
    walls[0] = False
    return _find_round((~walls[parts]).view(np.uint8), smooth, right, down, level)


def _find_round(mask: Mask, smooth: Mask, right: Singles, down: Singles, level: Singles) -> float | None:
    """Return the direction of the largest part of a mask if it is round; only smooth slopes count.

    NaN unless the whole part gets lighter to the same side.
    """
    count, parts = cv2.connectedComponents(mask, connectivity=4, ltype=cv2.CV_16U)
    areas = np.bincount(parts.ravel(), minlength=count)
    areas[_cut_by_edge(parts, count)] = 0
    part = int(areas.argmax())
    own = (parts == part).view(np.uint8)
    at = np.nonzero(own & smooth)
    if areas[part] < LEAST_AREA or not len(at[0]) or not _is_round(own):
        return None
    seen = level[at]
    weights = (seen + 16) ** 2  # turn slopes of lightness into slopes of luminance, in which lights add up
    across, along = (float((slope[at] * weights).sum() / weights.sum()) for slope in (right, down))
    if math.hypot(across, along) < LEAST_SLOPE:
        return None
    rows, columns = (axis - axis.mean() for axis in at)
    side, rise = _to_angle(across, along), _to_angle(float(seen @ columns), float(seen @ rows))
    turn = complex(across, along) / math.hypot(across, along) * math.sqrt(len(seen) / math.pi)
    places = (columns + 1j * rows) / turn
    return math.nan if _compare_angles(side, rise) > SOLID_AGREED or _is_lit_twice(places, seen) else side


def _is_lit_twice(places: NDArray[np.complex128], lightness: Singles) -> bool:
    """Return whether a solid is lighter beside its middle than there, across the light: two lamps at its sides.

    `places`: n, in radii, the first axis along the light.
    """
    beside = np.abs(places.imag)[np.abs(places.real) < 0.3]
    band = lightness[np.abs(places.real) < 0.3]
    middle, edge = band[beside < 0.3], band[beside > 0.6]
    return bool(middle.size and edge.size and edge.mean() > middle.mean() + VISIBLE)


def _cut_by_edge(parts: NDArray[np.uint16], count: int) -> NDArray[np.bool_]:
    """Return which parts (n) the frame's edge cuts; part 0, the background, counts as cut."""
    cut = np.zeros(count, bool)
    for line in (parts[0], parts[-1], parts[:, 0], parts[:, -1]):
        cut[line] = True
    cut[0] = True
    return cut


def _is_round(mask: Mask) -> bool:
    moments = cv2.moments(mask)
    area = moments["m00"]
    wide, high, both = (moments[name] / area for name in ("mu20", "mu02", "mu11"))
    wide, high = wide + 1 / 12, high + 1 / 12  # the pixel's own
    middle, apart = (wide + high) / 2, math.hypot((wide - high) / 2, both)
    ellipse = 4 * math.pi * math.sqrt(middle**2 - apart**2)
    return bool(area >= ROUND * ellipse and middle - apart >= NARROWEST**2 * (middle + apart))


def _fit_plane(lightness: Singles) -> tuple[float, float, float]:
    """Return the slope of the frame to the right and down in L* a px, and its R squared.

    A plane is fitted by least squares to the lightness of cells, at most 32 along the shorter side. The weights are
    round, and fall to 0 at that side's ends. So a plain ramp is exact in a frame of any shape, and so is a subject in
    its middle. This is the image's balance of light, including dark trousers, not a lamp in the room.
    """
    weights, places, spreads = _weigh_cells(*lightness.shape)
    cells = cv2.resize(lightness, weights.shape[::-1], interpolation=cv2.INTER_AREA)
    weighted = weights * cells
    across, down = (float((weighted * at).sum()) / spread for at, spread in zip(places, spreads, strict=True))
    variance = float((weighted * cells).sum() - weighted.sum() ** 2)
    explained = across**2 * spreads[0] + down**2 * spreads[1]
    return across, down, min(1.0, explained / max(variance, 1e-9))


@lru_cache(maxsize=16)
def _weigh_cells(height: int, width: int) -> tuple[NDArray[np.float64], list[NDArray[np.float64]], list[float]]:
    """Return the cells' weights, their x and y about the middle in px, and the weighted squares of both."""
    short = min(height, width)
    cell = max(1.0, short / 32)
    rows, columns = max(1, round(height / cell)), max(1, round(width / cell))
    x, y = ((np.arange(count) - (count - 1) / 2) * side / count for count, side in ((columns, width), (rows, height)))
    places = [x, y[:, None]]
    weights = np.clip(1 - (x**2 + y[:, None] ** 2) / (short / 2) ** 2, 0, None) ** 0.5
    weights /= max(float(weights.sum()), 1e-9)
    return weights, places, [max(float((weights * at**2).sum()), 1e-9) for at in places]
