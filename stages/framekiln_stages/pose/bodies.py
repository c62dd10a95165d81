"""Poses as arrays: their scores, their distances from each other, and one pose for each person.

Shapes: p people of one image, 33 landmarks. A `Body` is float32 p 33 5: x, y, z, visibility, presence; x and y are
fractions of the image's width and height.
"""

import numpy as np
from numpy.typing import NDArray

from framekiln_stages.nets.mediapipe_tasks import Body
from framekiln_stages.shared.masks import landmark_boxes

# Of the box's diagonal. One person detected twice, in 11 photos: 0.009 to 0.09; two side by side: from 0.27.
SAME_BODY = 0.1


def scores(body: Body) -> NDArray[np.float32]:
    """Return the mean visibility of each person's landmarks (p), 0 to 1.

    The Tasks API does not return the detector's score.
    """
    return body[:, :, 3].mean(axis=1)


def pixel_boxes(body: Body, height: int, width: int) -> NDArray[np.float64]:
    """Return the boxes around the landmarks inside an image: p 4, x0 y0 x1 y1 in px."""
    return landmark_boxes(body).astype(np.float64) * [width, height, width, height]


def distances(one: Body, others: Body, height: int, width: int) -> NDArray[np.float64]:
    """Return how far one pose (33 5) lies from others (p), in diagonals of the larger box.

    It is the mean distance of the landmarks, weighted by presence in both.
    """
    if not len(others):
        return np.empty(0)
    size = np.array([width, height], np.float64)
    apart = np.hypot(*np.moveaxis((one[None, :, :2] - others[:, :, :2]) * size, -1, 0))
    weights = one[None, :, 4] * others[:, :, 4] + 1e-9
    boxes = pixel_boxes(np.concatenate([one[None], others]), height, width)
    diagonals = np.hypot(*(boxes[:, 2:] - boxes[:, :2]).T)
    largest = np.maximum(np.maximum(diagonals[0], diagonals[1:]), 1e-9)
    return np.asarray((apart * weights).sum(1) / weights.sum(1) / largest)


def distinct(body: Body, height: int, width: int) -> list[int]:
    """Return the indices of distinct people, the most visible first.

    Two detections of one person pass the detector's non-maximum suppression if their boxes differ, and then both end
    on the same landmarks. Two people are the same if they are less than `SAME_BODY` apart.
    """
    kept: list[int] = []
    for i in np.argsort(-scores(body), kind="stable").tolist():
        if not (distances(body[i], body[kept], height, width) < SAME_BODY).any():
            kept.append(i)
    return kept
