"""YuNet as a function from pictures to faces of any size.

Its anchors end at about 400 px: a face of 800 px is found three times or not at all. So a picture is shown twice, once
as large as small faces need and once small, and each face is taken where it has a size at which the network is good.
What runs the network is told apart: OpenCV's FaceDetectorYN here, torch in `stages.nets.yunet_torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]  # h w 3, RGB
Size = tuple[int, int]  # height and width

OVERLAP = 0.3  # IoU from which two boxes are one face: the default of FaceDetectorYN
GLANCE = 320  # px, longest side of the second, small showing: 4 ms
LARGEST = 400  # px of a face shown. An enlarged portrait: .96 at 200 px, .95 at 300, .90 at 500, three faces at 800


class Found(NamedTuple):
    """Faces of one picture, the surest first, in its pixels."""

    boxes: NDArray[np.float32]  # n 4: x0 y0 x1 y1, may reach over the edge
    points: NDArray[np.float32]  # n 5 2: right eye, left eye, nose, right and left corner of the mouth
    scores: NDArray[np.float32]  # n, 0 to 1

    def taken(self, which: NDArray[np.intp] | NDArray[np.bool_]) -> Found:
        """Some of the faces, by number or by mask."""
        return Found(self.boxes[which], self.points[which], self.scores[which])

    @property
    def sides(self) -> NDArray[np.float32]:
        """Width and height of each box: n 2."""
        return self.boxes[:, 2:] - self.boxes[:, :2]


Show = Callable[[Sequence[Image], Sequence[int]], list[Found]]
"""Faces of pictures (RGB) that are shown with these longest sides, in the pictures' own pixels, the surest first."""


class YuNet:
    """The detector: two showings of each picture.

    Args:
        show: runs the network.
        side: longest side in px of a picture's first showing; 0 for the picture as it is.
        most: faces of one picture.
    """

    def __init__(self, show: Show, *, side: int, most: int) -> None:
        self._show, self._side, self._most = show, side, most

    def __call__(self, images: Sequence[Image]) -> list[Found]:
        """The faces of each picture."""
        longest = [max(image.shape[:2]) for image in images]
        sides = [min(length, self._side or length) for length in longest]
        found = self._show(images, sides)
        again = [i for i, side in enumerate(sides) if side > GLANCE]
        for i, glanced in zip(again, self._show([images[i] for i in again], [GLANCE] * len(again)), strict=True):
            found[i] = _both(found[i], glanced, LARGEST * longest[i] / sides[i])
        return [one.taken(np.argsort(-one.scores, kind="stable")[: self._most]) for one in found]


class OpenCv:
    """The network by OpenCV, one picture after the other on one thread.

    Args:
        path: an ONNX file whose height and width are open, as in libfacedetection.train and opencv_zoo.
        min_score: from 0 to 1.

    Raises:
        RuntimeError: OpenCV refuses the file.
    """

    def __init__(self, path: Path, min_score: float) -> None:
        cv2.setNumThreads(1)  # workers side by side scale better than threads inside a picture
        level = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)  # it warns of a target nobody set
        try:
            self._net = cv2.FaceDetectorYN.create(str(path), "", (GLANCE, GLANCE), min_score, OVERLAP)
        except cv2.error as error:
            raise RuntimeError(f"OpenCV cannot use {path}: {error}") from error
        finally:
            cv2.utils.logging.setLogLevel(level)

    def __call__(self, images: Sequence[Image], sides: Sequence[int]) -> list[Found]:
        """See `Show`."""
        return [self._one(image, size_shown(image, side)) for image, side in zip(images, sides, strict=True)]

    def _one(self, image: Image, size: Size) -> Found:
        whole = size == image.shape[:2]
        shown = image if whole else cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
        self._net.setInputSize(size[::-1])
        rows = self._net.detect(cv2.cvtColor(shown, cv2.COLOR_RGB2BGR))[1]
        return unscaled(np.empty((0, 15), np.float32) if rows is None else rows, image, size)


def size_shown(image: Image, side: int) -> Size:
    """Of a picture with this longest side."""
    height, width = image.shape[:2]
    shrink = side / max(height, width)
    return max(1, round(height * shrink)), max(1, round(width * shrink))


def unscaled(rows: NDArray[np.float32], image: Image, shown: Size) -> Found:
    """FaceDetectorYN's rows (n 15: x y width height, five points, score) of what was shown, as faces of the picture."""
    rows = rows[np.isfinite(rows).all(axis=1)]
    back = np.array([image.shape[1] / shown[1], image.shape[0] / shown[0]], np.float32)
    start, extent = rows[:, :2] * back, rows[:, 2:4] * back
    return Found(np.concatenate([start, start + extent], axis=1), rows[:, 4:14].reshape(-1, 5, 2) * back, rows[:, 14])


def _both(close: Found, glanced: Found, limit: float) -> Found:
    """Small faces of the first showing, large ones of the second, which sees some of the first again."""
    small = close.taken(close.sides.max(axis=1) <= limit)
    return _joined(small, glanced.taken(glanced.sides.max(axis=1) > limit / 2))


def _joined(sure: Found, more: Found) -> Found:
    """All of the first, and of the second those that overlap none of them: more pixels mean better landmarks."""
    both = Found(*(np.concatenate(pair) for pair in zip(sure, more, strict=True)))
    boxes = np.concatenate([both.boxes[:, :2], both.sides], axis=1).astype(float)
    rank = both.scores + (np.arange(len(boxes)) < len(sure.scores))
    kept = cv2.dnn.NMSBoxes(boxes.tolist(), rank.tolist(), 0.0, OVERLAP) if len(boxes) else ()
    return both.taken(np.asarray(kept, np.intp).reshape(-1))
