"""SCRFD, the face detector of InsightFace's packages, which detects small faces in crowds.

Its input is a square: the image, scaled to fit, in the upper left corner, and black elsewhere. Each cell of three grids
has two anchors. Boxes and points are distances from the cell, in strides of its grid.

Shapes: h w height and width of the input; per stride, m = 2 h/stride w/stride anchors: scores m 1, boxes m 4 (left,
top, right, bottom), points m 10 (x y of five).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln.contract import Placement
from framekiln_stages.nets.checkpoints import GPU, open_session
from framekiln_stages.nets.faces.detections import FaceDetections, Image, grid_cells

# insightface, python-package/insightface/model_zoo/scrfd.py
STRIDES = (8, 16, 32)
ANCHORS = 2  # anchors of each cell
OVERLAP = 0.4  # IoU above which two boxes are one face
SIDE = 640  # px of the square in its examples and benchmarks
MIN_SCORE = 0.5
STEP = 32  # px; the square's side is a multiple
_WIDTHS = (1, 4, 10)  # values of an anchor: score, box, points


class Scrfd:
    """The detector in onnxruntime: on the CPU, or on a GPU if the placement is there and onnxruntime supports it.

    Args:
        path: an ONNX file with nine outputs: the scores of all strides, then the boxes, then the points.
        side: of the square in px, a multiple of 32; 0 for all pixels of the image, padded to multiples of 32.
        min_score: from 0 to 1.
        max_faces: of one image.
        placement: its device, and its number of threads on the CPU.

    Raises:
        ValueError: onnxruntime refuses the file, or it has other outputs.
    """

    def __init__(self, path: Path, *, side: int, min_score: float, max_faces: int, placement: Placement) -> None:
        self._side, self._min_score, self._max_faces = side, min_score, max_faces
        self._session = open_session(path, threads=max(1, int(placement.cpus)), gpu=placement.device != "cpu")
        self.on_gpu = GPU in self._session.get_providers()
        outputs = len(self._session.get_outputs())
        if outputs != len(STRIDES) * len(_WIDTHS):
            raise ValueError(f"{path.name} has {outputs} outputs; SCRFD with landmarks has nine")
        self._input = self._session.get_inputs()[0].name

    def __call__(self, image: Image) -> FaceDetections:
        square, scale = letterbox(image, self._side)
        pixels = ((square.astype(np.float32) - 127.5) / 128).transpose(2, 0, 1)[None]
        outputs = self._session.run(None, {self._input: np.ascontiguousarray(pixels)})
        faces = decode_anchors(outputs, square.shape[:2], self._min_score).suppress(OVERLAP)
        faces = FaceDetections(faces.boxes * np.tile(scale, 2), faces.points * scale, faces.scores)
        return faces.select(np.arange(min(self._max_faces, len(faces.scores))))


def letterbox(image: Image, side: int) -> tuple[Image, NDArray[np.float32]]:
    """Return the image in the upper left of a black square, and px of the image for one of the square (x, y).

    It is scaled bilinearly, up as well as down, as in the network's training; with side 0, padded only.
    """
    height, width = image.shape[:2]
    factor = side / max(height, width) if side else 1.0
    new_width, new_height = max(1, int(width * factor + 1e-6)), max(1, int(height * factor + 1e-6))
    shape = (side, side) if side else tuple(-(-length // STEP) * STEP for length in (height, width))
    square = np.zeros((*shape, 3), np.uint8)
    same = (new_height, new_width) == (height, width)
    square[:new_height, :new_width] = image if same else cv2.resize(image, (new_width, new_height))
    return square, np.array([width / new_width, height / new_height], np.float32)


def decode_anchors(outputs: Sequence[NDArray[Any]], shape: Sequence[int], min_score: float) -> FaceDetections:
    """Return all faces of at least `min_score`, highest score first, in px of the network's input.

    `outputs`: the nine outputs, with or without a leading axis of length 1. `shape`: height and width of the input.
    `min_score`: from 0 to 1.
    """
    parts = []
    for level, stride in enumerate(STRIDES):
        scores, boxes, points = (
            outputs[level + kind * len(STRIDES)].reshape(-1, width) for kind, width in enumerate(_WIDTHS)
        )
        places = np.repeat(grid_cells(shape[0] // stride, shape[1] // stride), ANCHORS, axis=0) * stride
        if len(scores) != len(places):
            raise ValueError(f"SCRFD has {len(scores)} outputs at stride {stride}, not {len(places)}")
        chosen = np.flatnonzero(scores[:, 0] >= min_score)
        distances, place = boxes[chosen] * stride, places[chosen]
        corners = np.concatenate([place - distances[:, :2], place + distances[:, 2:]], axis=1)
        landmarks = place[:, None] + points[chosen].reshape(-1, 5, 2) * stride
        parts.append(FaceDetections(corners, landmarks, scores[chosen, 0]))
    faces = FaceDetections.concatenate(parts)
    return faces.select(np.argsort(-faces.scores, kind="stable"))
