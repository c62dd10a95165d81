"""The motion between two frames, and further looks at a pair if the flow back does not confirm it.

Moving light looks like motion: bands of a lamp, a spot, a flash. Scaling each part by its own mean and contrast removes
smooth light, so that the camera stands still. Large motion is found better in fewer pixels.

Shapes: h, w of the computed size; a flow field is float32 h w 2, the displacement (x right, y down) in px from one
frame to the next; a camera's motion is a 2 3 matrix in px.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln_stages.shared.grey_images import Gray, even, is_textured, reduced, without_stripes

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


# Agreement below which a pair is checked again: motion of 60 px of 1242 has 0.83, bands of light 0.1 to 0.8.
DOUBTFUL = 0.8
# Chosen on ten photos with bands, spots and steps of light over a camera that stands or moves by 6 px, and with motion
# of 60 to 220 px of 1242. Of 100 pairs in such light, looks at 224 px alone kept 53, 41 wrong by more than 2 px and 30
# %. Now 75 are kept, 7 wrong. Of the 60 with large motion 45 were kept, 5 wrong by 30 %; now 43, 4 wrong.
SURE = 0.75  # agreement from which no other look is needed
NEAR = 0.3  # mean distance of one motion in two looks, as a share of its length
RIVAL = 0.1  # a look with less agreement, by at most this, and another motion makes the motion unknown
SMALL = 1.0  # px: stripes that change a flow by less do no harm
LEAST = 0.6  # agreement without stripes below which no further look was sure, in 40 pairs of films
SMALLEST = 24  # px of a frame's sides: DIS takes 12 px, and the rough flow back half of the pixels
FEWER = 0.75  # share of the pixels' sides, if these are at most `size`


class Motion(NamedTuple):
    """The flow of a pair of frames, its agreement with the flow back, and whether its motion is known."""

    flow: Field
    agreement: float
    known: bool = True


Confirm = Callable[[Gray, Gray], Motion]
"""Computes the flow of a pair and its agreement."""


def settle(first: Motion, now: Gray, then: Gray, size: int, confirm: Confirm) -> Motion:
    """Return the surest of several looks at a pair; its motion is known if the looks agree, or it is sure."""
    looks = [first, *_look_again(now, then, size, confirm)]
    best = max(looks, key=lambda look: look.agreement)
    others = [(_measure_distance(best.flow, look.flow), look.agreement) for look in looks if look is not best]
    confirmed = any(distance <= NEAR for distance, _ in others)
    rivalled = any(distance > NEAR and sure >= best.agreement - RIVAL for distance, sure in others)
    return best._replace(known=best.agreement >= SURE or (confirmed and not rivalled))


def unstripe(first: Motion, now: Gray, then: Gray, size: int, confirm: Confirm, guess: Callable[..., Field]) -> Motion:
    """Return the flow of a pair without changing stripes of light, if these change it; else the first flow.

    Brick walls and feathers look like stripes too: there `guess`, a rough flow, is near the first one. With stripes,
    the first look's agreement says nothing. So its motion is unknown unless the other look is sure.
    """
    plain = without_stripes(now, then)
    if plain is None or _is_near(first.flow, resized(guess(*plain), *now.shape)):
        return first
    found = confirm(*plain)
    if _is_near(first.flow, found.flow):
        return first
    if LEAST <= found.agreement < DOUBTFUL and is_textured(plain[0]):
        found = settle(found, *plain, size, confirm)
    known = found.known and found.agreement >= SURE and is_textured(plain[0])
    return found if known else first._replace(known=False)


def _is_near(flow: Field, other: Field) -> bool:
    apart, length = (float(np.linalg.norm(each, axis=-1).mean()) for each in (flow - other, flow))
    return apart <= max(SMALL, NEAR * length)


def _look_again(now: Gray, then: Gray, size: int, confirm: Confirm) -> Iterator[Motion]:
    small = size if size and min(now.shape) > size / FEWER else round(min(now.shape) * FEWER)
    found = confirm(*(reduced(image, max(SMALLEST, small)) for image in (now, then)))
    yield found._replace(flow=resized(found.flow, *now.shape))
    yield confirm(even(now), even(then))


def _measure_distance(one: Field, other: Field) -> float:
    """Return the mean distance of two flows, relative to the first one's mean length or one px."""
    lengths = (float(np.linalg.norm(flow, axis=-1).mean()) for flow in (one - other, one))
    return next(lengths) / max(next(lengths), 1.0)
