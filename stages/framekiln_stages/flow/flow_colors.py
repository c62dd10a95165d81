"""Flow fields as images: KITTI's 16-bit PNGs to keep them, and the colour wheel of the Middlebury benchmark.

Baker, Scharstein, Lewis, Roth, Black, Szeliski: A Database and Evaluation Methodology for Optical Flow, ICCV 2007. The
hue is the direction as seen. The distance from white is the speed.
"""

import math
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln_stages.flow.motion import Field

SCALE, ZERO = 64.0, 32768.0  # KITTI 2015 development kit: u = (value - 2^15) / 64


def encode(flow: Field) -> bytes:
    """Return a flow field as a KITTI 16-bit PNG: red x, green y, both in 1/64 px around 2^15; blue 1 where valid.

    Rounding errs by at most 1/128 px. Displacements above 511 px or not finite are marked invalid.
    """
    valid = np.all(np.abs(flow) <= 511, axis=-1, keepdims=True)
    steps = np.where(valid, flow, 0) * SCALE + ZERO
    x, y = cv2.split(np.rint(steps).astype(np.uint16))
    channels = cv2.merge([valid.astype(np.uint16), y, x])
    return cv2.imencode(".png", channels, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()


def decode(data: bytes) -> Field:
    """Return the flow field of a KITTI 16-bit PNG; NaN where it is marked invalid.

    Raises ValueError: not a PNG of 16 bits and three channels.
    """
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) if data else None
    if image is None or image.dtype != np.uint16 or image.ndim != 3:
        raise ValueError("not a KITTI flow field: a PNG of 16 bits and three channels is needed")
    flow = (image[..., 2:0:-1].astype(np.float32) - np.float32(ZERO)) / np.float32(SCALE)
    flow[image[..., 0] == 0] = np.nan
    return flow


# Positions of red, yellow, green, cyan, blue, magenta and red among the wheel's 55 distinguishable hues.
_PLACES = (0, 15, 21, 25, 36, 49, 55)
_CORNERS = np.array([(1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1), (1, 0, 1), (1, 0, 0)], np.float64)
BEYOND = 0.75  # brightness of pixels faster than the scale
SIDE = 96  # px of the legend

LEGEND = (
    "Colour shows where things move (Middlebury wheel), white is rest, and full colour is the speed that a "
    "twentieth of the image exceeds. Where the field was not kept (cache), the whole image has its mean's colour."
)
FIELD_OPACITY, TINT_OPACITY = 0.75, 0.3  # opacity of the colours over the image

RGB = NDArray[np.uint8]  # h w 3


def colours(flow: Field, scale: float) -> RGB:
    """Return the colours of a flow field: white without motion, black where it is not finite.

    `flow`: displacements (x right, y down), px. `scale`: length with the full colour, px, above 0; longer displacements
    are darker.
    """
    known = np.isfinite(flow).all(axis=-1, keepdims=True)
    x, y = np.moveaxis(np.where(known, flow, 0.0) / scale, -1, 0)
    length = np.hypot(x, y)
    position = (np.arctan2(-y, -x) / np.pi + 1) / 2 * (_PLACES[-1] - 1)
    hue = np.stack([np.interp(position, _PLACES, channel) for channel in _CORNERS.T], axis=-1)
    inside = np.minimum(length, 1)[..., None]
    shown = np.where(length[..., None] <= 1, 1 - inside * (1 - hue), hue * BEYOND)
    return np.asarray(np.where(known, np.floor(255 * shown), 0), np.uint8)


def png(image: RGB, opacity: float = 1.0) -> bytes:
    """Return an image as a semi-transparent PNG."""
    alpha = np.full((*image.shape[:2], 1), round(255 * opacity), np.uint8)
    return cv2.imencode(".png", np.concatenate([image[..., ::-1], alpha], axis=2))[1].tobytes()


def legend() -> bytes:
    """Return the wheel as a PNG: a point has the colour of the motion from the centre to it."""
    span = np.linspace(-1, 1, SIDE)
    x, y = np.meshgrid(span, span)
    image = colours(np.stack([x, y], axis=-1).astype(np.float32), 1.0)
    inside = np.where(np.hypot(x, y) <= 1, 255, 0).astype(np.uint8)
    return cv2.imencode(".png", np.dstack([image[..., ::-1], inside]))[1].tobytes()


def coloured(row: Mapping[str, Any]) -> bytes:
    """Return the stored field in Middlebury's colours as a PNG, or without it a tint by the mean motion."""
    if row.get("flow_field"):
        flow = decode(row["flow_field"])
        lengths = np.linalg.norm(flow, axis=-1)
        known = lengths[np.isfinite(lengths)]
        scale = max(1.0, float(np.percentile(known, 95))) if known.size else 1.0
        return png(colours(flow, scale), FIELD_OPACITY)
    angle = math.radians(row["motion_direction"] or 0.0)
    length = 0.0 if row["motion_direction"] is None else row["motion_mean"]
    mean = np.array([[[length * math.cos(angle), -length * math.sin(angle)]]], np.float32)
    return png(colours(mean, max(1.0, row["motion_p95"] or 0.0)), TINT_OPACITY)
