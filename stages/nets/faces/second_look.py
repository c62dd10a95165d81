"""A second look at faces: each alone, at a size at which YuNet is sure of faces, and mirrored.

What is no face scores well in one place, at one size, and in one direction: a bear, a head lamp, a printed grid. A face
scores well in every view, a blurred or a small one too. So the least score of several views tells them apart where the
first score does not.

Photographed faces of 16 px and more had 0.85 to 0.94 here, whatever their first score from 0.6 on, and those of an
animated film 0.62 to 0.9. Other things had 0.78 at most, a dog's face 0.76, with first scores up to 0.89. At 24, 32, 40
or 64 px instead of 48 both overlap.

Shapes: n faces of any images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from stages.nets.faces.detections import FaceDetections, Image

FACE = 48  # px, longer side of the face in its view
VIEW = 3 * FACE  # px, side of a view
SAME = 0.3  # IoU with the first box from which a face in the view is the same one
VIEWS_AT_ONCE = 256  # of 62 kB each
RunNetwork = Callable[[Sequence[Image], Sequence[int]], list[FaceDetections]]
Box = NDArray[np.float64]  # x0 y0 x1 y1 in px


def least_scores(run: RunNetwork, images: Sequence[Image], boxes: Sequence[Box]) -> NDArray[np.float64]:
    """Return the least score of each face (n) in its views, from 0.

    Args:
        run: the network, as in `stages.nets.faces.yunet.RunNetwork`.
        images: n, the image of each face.
        boxes: n, the box of each face in its image.
    """
    pairs = [_view(image, box) for image, box in zip(images, boxes, strict=True)]
    views, places = [view for view, _ in pairs], [box for _, box in pairs]
    views += [np.ascontiguousarray(view[:, ::-1]) for view in views]
    places += [np.array([VIEW - box[2], box[1], VIEW - box[0], box[3]]) for box in places]
    scores: list[float] = []
    for start in range(0, len(views), VIEWS_AT_ONCE):
        part = views[start : start + VIEWS_AT_ONCE]
        scores += map(_score_at, places[start:], run(part, [VIEW] * len(part)))
    return np.array(scores).reshape(2, -1).min(axis=0)


def _view(image: Image, box: Box) -> tuple[Image, Box]:
    """Return a square around a box, black beyond the image, and the box in it."""
    longest = float((box[2:] - box[:2]).max())
    side = max(round(longest * VIEW / FACE), 3)
    left, top = np.floor((box[:2] + box[2:] - side) / 2).astype(int).tolist()
    part = image[max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)]
    square = np.zeros((side, side, 3), np.uint8)
    y, x = max(-top, 0), max(-left, 0)
    square[y : y + part.shape[0], x : x + part.shape[1]] = part
    method = cv2.INTER_AREA if side > VIEW else cv2.INTER_LINEAR
    view = np.asarray(cv2.resize(square, (VIEW, VIEW), interpolation=method), np.uint8)
    return view, (box - [left, top, left, top]) * (VIEW / side)


def _score_at(box: Box, faces: FaceDetections) -> float:
    """Return the best score of the faces at a box; 0 if there are none."""
    starts, ends = np.maximum(faces.boxes[:, :2], box[:2]), np.minimum(faces.boxes[:, 2:], box[2:])
    common = (ends - starts).clip(0).prod(axis=1)
    union = faces.sides.prod(axis=1) + (box[2:] - box[:2]).prod() - common
    return float(faces.scores[common > SAME * union].max(initial=0))
