"""What a flow field says of two frames: how they move, how the camera does, and whether motion explains the second one.

Shapes: h, w of the computed size; a flow field is float32 h w 2, the displacement (x right, y down) in px from one
frame to the next; a camera's motion is a 2 3 matrix in px.
"""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]
Gray = NDArray[np.uint8]  # h w
Camera = NDArray[np.float64]


def motion(flow: Field, height: int, width: int, still: float) -> dict[str, float | None]:
    """Length and direction of a flow field, in px of a frame of `height` by `width`.

    The direction is that of the mean vector, which is the circular mean weighted by length; None when that vector is
    shorter than `still` px of the computed size.
    """
    scale = np.array([width / flow.shape[1], height / flow.shape[0]], np.float32)
    length = cv2.magnitude(*cv2.split(flow * scale))
    x, y = cv2.mean(flow)[:2]
    turned = np.float32(math.degrees(math.atan2(-y * scale[1], x * scale[0])) % 360.0)
    return {
        "motion_mean": cv2.mean(length)[0],
        "motion_p95": float(np.percentile(length, 95)),
        "motion_direction": None if math.hypot(x, y) < still else float(turned) % 360.0,
    }


def camera(flow: Field) -> Camera | None:
    """The shift, rotation and zoom that most of a flow field follows, by RANSAC; None when there is none.

    This is the model of OpenCV's video stabiliser; its RANSAC has a fixed seed.
    """
    start = _grid(*flow.shape[:2])
    x, y = start.astype(int).T
    # 1 px at a short side of 448 and less, where DIS errs by about half of that; beyond, the same share of the frame.
    tolerance = max(1.0, min(flow.shape[:2]) / 448)
    matrix, _ = cv2.estimateAffinePartial2D(start, start + flow[y, x], ransacReprojThreshold=tolerance)
    return None if matrix is None or not np.isfinite(matrix).all() else matrix


def shake(now: Camera | None, then: Camera | None, height: int, width: int) -> float | None:
    """How much the camera's motion changes from one pair of frames to the next: RMS over the frame, in frame diagonals.

    A steady pan, tilt, roll or zoom gives 0. 0.001 is two pixels of a full-HD frame.
    """
    if now is None or then is None:
        return None
    change = _grid(height, width) @ (then - now)[:, :2].T + (then - now)[:, 2]
    return float(np.sqrt((change**2).sum(1).mean()) / math.hypot(height, width))


def _grid(height: int, width: int) -> NDArray[np.float32]:
    """About 24 by 24 points (n 2) in x, y."""
    down, right = max(1, height // 24), max(1, width // 24)
    y, x = np.mgrid[down // 2 : height : down, right // 2 : width : right]
    return np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)


def residual(now: Gray, then: Gray, flow: Field) -> float:
    """How little of a frame is found again in the next, warped back along the flow: 0 all, 1 nothing, 2 its negative.

    It is 1 minus the local correlation of the two (windows of 1/18 of the short side), weighted by local contrast.
    Correlation does not see a change of exposure. A distance of colour histograms was tried beside it and left out: two
    stops more light raise it to .87, and it says .13 at a real cut between two dark faces but .38 inside a fade.
    """
    window = (max(7, min(now.shape) // 18 | 1),) * 2
    height, width = now.shape
    to_x = flow[..., 0] + np.arange(width, dtype=np.float32)
    to_y = flow[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    a = now.astype(np.float32)
    b = cv2.remap(then.astype(np.float32), to_x, to_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    mean_a, mean_b = cv2.blur(a, window), cv2.blur(b, window)
    var_a = np.maximum(cv2.blur(a * a, window) - mean_a * mean_a, 0)
    var_b = np.maximum(cv2.blur(b * b, window) - mean_b * mean_b, 0)
    floor = 30.0  # a deviation of 5.5 codes: where there is little but compression noise, frames count as alike
    alike = (cv2.blur(a * b, window) - mean_a * mean_b + floor) / np.sqrt((var_a + floor) * (var_b + floor))
    weight = np.sqrt(var_a) + np.sqrt(var_b) + 1.0
    return 1.0 - float(np.average(alike, weights=weight))


def score(left: float, half: float) -> float:
    """A residual as a score from 0 to 1, .5 at `half`, by the Hill curve r^4 / (r^4 + half^4)."""
    raised = max(0.0, left) ** 4
    return raised / (raised + half**4)
