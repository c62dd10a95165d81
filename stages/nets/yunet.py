"""YuNet as a function from one picture to faces of any size.

Its anchors end at about 400 px: a face of 800 px is found three times or not at all. So the picture is shown twice,
once as large as small faces need and once small, and each face is taken where it has a size at which the network is
good. OpenCV's FaceDetectorYN does the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]  # h w 3, RGB

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


class YuNet:
    """The detector, on one CPU thread.

    Args:
        path: an ONNX file whose height and width are open, as in libfacedetection.train and opencv_zoo.
        side: longest side in px of the picture's first showing; 0 for the picture as it is.
        min_score: from 0 to 1.
        most: faces of one picture.

    Raises:
        RuntimeError: OpenCV refuses the file.
    """

    def __init__(self, path: Path, *, side: int, min_score: float, most: int) -> None:
        cv2.setNumThreads(1)  # workers side by side scale better than threads inside a picture
        self._side, self._most = side, most
        level = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)  # it warns of a target nobody set
        try:
            self._net = cv2.FaceDetectorYN.create(str(path), "", (GLANCE, GLANCE), min_score, OVERLAP)
        except cv2.error as error:
            raise RuntimeError(f"OpenCV cannot use {path}: {error}") from error
        finally:
            cv2.utils.logging.setLogLevel(level)

    def __call__(self, image: Image) -> Found:
        """The faces of one RGB picture."""
        longest = max(image.shape[:2])
        first = min(longest, self._side or longest)
        found = self._shown(image, first)
        if first > GLANCE:
            limit = LARGEST * longest / first
            found = found.taken(found.sides.max(axis=1) <= limit)
            glanced = self._shown(image, GLANCE)  # sees large faces, some that were seen before among them
            found = _joined(found, glanced.taken(glanced.sides.max(axis=1) > limit / 2))
        return found.taken(np.argsort(-found.scores, kind="stable")[: self._most])

    def _shown(self, image: Image, side: int) -> Found:
        """The faces found when the picture is shrunk to this longest side."""
        height, width = image.shape[:2]
        shrink = side / max(height, width)
        size = (max(1, round(width * shrink)), max(1, round(height * shrink)))
        shown = image if size == (width, height) else cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        self._net.setInputSize(size)
        rows = self._net.detect(cv2.cvtColor(shown, cv2.COLOR_RGB2BGR))[1]
        if rows is None:
            rows = np.empty((0, 15), np.float32)
        rows = rows[np.isfinite(rows).all(axis=1)]
        back = np.array([width / size[0], height / size[1]], np.float32)
        start, extent = rows[:, :2] * back, rows[:, 2:4] * back
        boxes = np.concatenate([start, start + extent], axis=1)
        return Found(boxes, rows[:, 4:14].reshape(-1, 5, 2) * back, rows[:, 14])


def _joined(sure: Found, more: Found) -> Found:
    """All of the first, and of the second those that overlap none of them: more pixels mean better landmarks."""
    both = Found(*(np.concatenate(pair) for pair in zip(sure, more, strict=True)))
    boxes = np.concatenate([both.boxes[:, :2], both.sides], axis=1).astype(float)
    rank = both.scores + (np.arange(len(boxes)) < len(sure.scores))
    kept = cv2.dnn.NMSBoxes(boxes.tolist(), rank.tolist(), 0.0, OVERLAP) if len(boxes) else ()
    return both.taken(np.asarray(kept, np.intp).reshape(-1))
