"""Measures of a flow field between two frames: motion, agreement, and camera motion.

Shapes: h, w of the computed size; a flow field is float32 h w 2, the displacement (x right, y down) in px from one
frame to the next; a camera's motion is a 2 3 matrix in px.
"""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]
Camera = NDArray[np.float64]


def motion(flow: Field, height: int, width: int, still: float) -> dict[str, float | None]:
    """Return length and direction of a flow field, in px of a frame of `height` by `width`.

    Every second pixel of both sides counts, as many as DIS and RAFT compute. The direction is that of the mean vector:
    the circular mean weighted by length. It is None if that vector is shorter than `still` px of the computed size.
    """
    scale = np.array([width / flow.shape[1], height / flow.shape[0]], np.float32)
    across, down = cv2.split(flow[::2, ::2] * scale)
    length = np.sqrt(np.square(across) + np.square(down))  # cv2.magnitude's last bits depend on the array's address
    x, y = cv2.mean(flow)[:2]
    angle = np.float32(math.degrees(math.atan2(-y * scale[1], x * scale[0])) % 360.0)
    return {
        "motion_mean": cv2.mean(length)[0],
        "motion_p95": float(np.percentile(length, 95)),
        "motion_direction": None if math.hypot(x, y) < still else float(angle) % 360.0,
    }


def agreement(flow: Field, back: Field, every: int = 1, noise: float = 0.5) -> float:
    """Return the share of pixels that flow and flow back return to their start, 0 to 1.

    The bound is that of Sundaram, Brox and Keutzer 2010: `noise` (half a squared px there) plus a hundredth of the
    squared lengths. Pixels that leave the frame count as disagreeing, since nothing confirms them. Each `every`-th
    pixel of both sides counts. The flow back may have another size.
    """
    height, width = flow.shape[:2]
    down, right = back.shape[0] / height, back.shape[1] / width
    x, y = cv2.split(flow[::every, ::every])
    to_x = x + np.arange(0, width, every, dtype=np.float32)
    to_y = y + np.arange(0, height, every, dtype=np.float32)[:, None]
    inside = (to_x >= 0) & (to_x <= width - 1) & (to_y >= 0) & (to_y <= height - 1)
    place = (to_x + 0.5) * right - 0.5, (to_y + 0.5) * down - 0.5
    found = cv2.remap(back, *place, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    back_x, back_y = (side / share for side, share in zip(cv2.split(found), (right, down), strict=True))
    off = (x + back_x) ** 2 + (y + back_y) ** 2
    bound = 0.01 * (x * x + y * y + back_x * back_x + back_y * back_y) + noise
    return float(((off < bound) & inside).mean())


def resized(flow: Field, height: int, width: int) -> Field:
    """Return a flow field at another size, in px of that size."""
    scale = np.array([width / flow.shape[1], height / flow.shape[0]], np.float32)
    return np.asarray(cv2.resize(flow, (width, height)) * scale, np.float32)


def camera(flow: Field) -> Camera | None:
    """Return the shift, rotation and zoom of most of a flow field, by RANSAC; None if it finds none.

    The model is that of OpenCV's video stabiliser. Its RANSAC has a fixed seed.
    """
    start = _make_grid(*flow.shape[:2])
    x, y = start.astype(int).T
    # 1 px up to a short side of 448, where DIS errs by about half of that; above, the same share of the frame.
    tolerance = max(1.0, min(flow.shape[:2]) / 448)
    matrix, _ = cv2.estimateAffinePartial2D(start, start + flow[y, x], ransacReprojThreshold=tolerance)
    return None if matrix is None or not np.isfinite(matrix).all() else matrix


def shake(now: Camera | None, then: Camera | None, height: int, width: int) -> float | None:
    """Return the change of camera motion between pairs of frames: RMS over the frame, in diagonals.

    A steady pan, tilt, roll or zoom gives 0. A value of 0.001 is two pixels of a full-HD frame.
    It is no speed: trembling turns round within a few frames, so it does not grow with the time between frames.
    """
    if now is None or then is None:
        return None
    change = _make_grid(height, width) @ (then - now)[:, :2].T + (then - now)[:, 2]
    return float(np.sqrt((change**2).sum(1).mean()) / math.hypot(height, width))


def _make_grid(height: int, width: int) -> NDArray[np.float32]:
    # about 24 by 24 points
    down, right = max(1, height // 24), max(1, width // 24)
    y, x = np.mgrid[down // 2 : height : down, right // 2 : width : right]
    return np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)
