"""Faces of pictures that lie on a side or upside down, in the unturned picture's pixels.

YuNet finds faces up to about 30 degrees from upright. So a picture without a sure face is also searched in quarter
turns: first small, some 4 ms a turn, then in full if that shows a face.

Shapes: n faces of one image. A turn is a number of quarters counterclockwise, as in `numpy.rot90`.
"""

from collections.abc import Sequence

import cv2
import numpy as np

from framekiln_stages.nets.faces.detections import FaceDetections, Image

TURNS = (1, 2, 3)
COVERED = 0.5  # share of the smaller box: an upside-down head is taken for a face at its chin or at its forehead


def turn(image: Image, quarters: int) -> Image:
    """Return an image turned counterclockwise."""
    return np.ascontiguousarray(np.rot90(image, quarters))


def shrink(image: Image, side: int) -> Image:
    """Return an image whose longest side is at most `side` px, by means over areas."""
    scale = min(1.0, side / max(image.shape[:2]))
    height, width = (max(1, round(length * scale)) for length in image.shape[:2])
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def turn_back(faces: FaceDetections, quarters: int, shape: Sequence[int]) -> FaceDetections:
    """Return faces of a turned image in px of the unturned image, of this shape (h w ...)."""
    points, corners = faces.points, faces.boxes.reshape(-1, 2, 2)
    for done in range(quarters):  # undone quarter by quarter: the last one turned an image of this width
        width = shape[1] if (quarters - done) % 2 else shape[0]
        points, corners = (np.stack([width - at[..., 1], at[..., 0]], axis=-1) for at in (points, corners))
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    return FaceDetections(boxes, points, faces.scores)


def join(faces: FaceDetections, others: FaceDetections) -> FaceDetections:
    """Return the first faces, and the others that cover none of them."""
    starts = np.maximum(faces.boxes[:, None, :2], others.boxes[None, :, :2])
    ends = np.minimum(faces.boxes[:, None, 2:], others.boxes[None, :, 2:])
    smaller = np.minimum(faces.sides.prod(axis=1)[:, None], others.sides.prod(axis=1))
    new = ((ends - starts).clip(0).prod(axis=2) <= COVERED * smaller).all(axis=0)
    return FaceDetections.concatenate([faces, others.select(new)])
