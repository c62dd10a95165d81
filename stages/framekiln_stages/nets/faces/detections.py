"""Faces of one image, the result of every detector, and their non-maximum suppression.

Shapes: n faces.
"""

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]  # h w 3, RGB
Size = tuple[int, int]  # height and width, px


class FaceDetections(NamedTuple):
    """Faces of one image, highest score first, in its pixels."""

    boxes: NDArray[np.float32]  # n 4: x0 y0 x1 y1, may exceed the edge
    points: NDArray[np.float32]  # n 5 2: right eye, left eye, nose, right and left corner of the mouth
    scores: NDArray[np.float32]  # n, 0 to 1

    @classmethod
    def concatenate(cls, parts: "Sequence[FaceDetections]") -> "FaceDetections":
        empty = cls(np.empty((0, 4), np.float32), np.empty((0, 5, 2), np.float32), np.empty(0, np.float32))
        return cls(*(np.concatenate(arrays) for arrays in zip(empty, *parts, strict=True)))

    def select(self, faces: NDArray[np.intp] | NDArray[np.bool_]) -> "FaceDetections":
        """Return some of the faces, by their numbers or by a mask."""
        return FaceDetections(self.boxes[faces], self.points[faces], self.scores[faces])

    @property
    def sides(self) -> NDArray[np.float32]:
        """Width and height of each box: n 2."""
        return self.boxes[:, 2:] - self.boxes[:, :2]

    def suppress(self, max_iou: float, ranks: NDArray[np.floating] | None = None) -> "FaceDetections":
        """Drop faces that overlap a face of higher rank (n) by more than `max_iou`; without ranks, of higher score."""
        if not len(self.scores):
            return self
        boxes = np.concatenate([self.boxes[:, :2], self.sides], axis=1).astype(float)
        order = (self.scores if ranks is None else ranks).astype(float)
        kept = cv2.dnn.NMSBoxes(boxes.tolist(), order.tolist(), 0.0, max_iou)
        return self.select(np.asarray(kept, np.intp).reshape(-1))


def grid_cells(height: int, width: int) -> NDArray[np.float32]:
    """Return column and row of each cell of a grid (m 2), row by row."""
    rows, columns = np.divmod(np.arange(height * width), width)
    return np.stack([columns, rows], axis=1).astype(np.float32)
