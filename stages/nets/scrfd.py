"""SCRFD as a function from one picture to faces: the detector of InsightFace's packages, sure of small faces in crowds.

It is shown one square: the picture, scaled to fit, lies in the upper left corner, the rest is black. At each place of
three grids it has two guesses, whose boxes and points are distances from that place in steps of the grid.

Shapes: h w height and width of the picture; per stride, m = 2 h/stride w/stride guesses: scores m 1, boxes m 4 (left,
top, right, bottom), points m 10 (x y of five).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.stage import Placement
from stages.nets.yunet import Found, Image

# insightface, python-package/insightface/model_zoo/scrfd.py
STRIDES = (8, 16, 32)
GUESSES = 2  # of each place
OVERLAP = 0.4  # IoU over which two boxes are one face
SIDE = 640  # px of the square in its examples and benchmarks
MIN_SCORE = 0.5
STEP = 32  # px; the square's side is a multiple
_WIDTHS = (1, 4, 10)  # numbers of a guess: score, box, points


class Scrfd:
    """The detector by onnxruntime: on the CPU, or on a GPU where the placement is there and onnxruntime can use it.

    Args:
        path: an ONNX file with nine outputs, scores of all strides first, then boxes, then points.
        side: of the square in px, a multiple of 32; 0 to show every pixel of the picture, filled up to such multiples.
        min_score: from 0 to 1.
        most: faces of one picture.
        placement: its device, and its number of threads on the CPU.

    Raises:
        ValueError: onnxruntime refuses the file, or it has other outputs.
    """

    def __init__(self, path: Path, *, side: int, min_score: float, most: int, placement: Placement) -> None:
        self._side, self._min_score, self._most = side, min_score, most
        self._session = _session(path, placement)
        self.on_gpu = "CUDAExecutionProvider" in self._session.get_providers()
        outputs = len(self._session.get_outputs())
        if outputs != len(STRIDES) * len(_WIDTHS):
            raise ValueError(f"{path.name} has {outputs} outputs; SCRFD with landmarks has nine")
        self._input = self._session.get_inputs()[0].name

    def __call__(self, image: Image) -> Found:
        """The faces of one RGB picture."""
        shown, back = letterboxed(image, self._side)
        pixels = ((shown.astype(np.float32) - 127.5) / 128).transpose(2, 0, 1)[None]
        values = self._session.run(None, {self._input: np.ascontiguousarray(pixels)})
        found = decoded(values, shown.shape[:2], self._min_score)
        sparse = _one_each(found)
        boxes, points = sparse.boxes * np.tile(back, 2), sparse.points * back
        return Found(boxes, points, sparse.scores).taken(np.arange(min(self._most, len(sparse.scores))))


def letterboxed(image: Image, side: int) -> tuple[Image, NDArray[np.float32]]:
    """The picture scaled into the upper left of a black square, and its own px for one of the square (x, y).

    Scaled bilinearly and up too, as where the network was trained; with side 0 not scaled, only filled up.
    """
    height, width = image.shape[:2]
    factor = side / max(height, width) if side else 1.0
    new_width, new_height = max(1, int(width * factor + 1e-6)), max(1, int(height * factor + 1e-6))
    shape = (side, side) if side else tuple(-(-length // STEP) * STEP for length in (height, width))
    square = np.zeros((*shape, 3), np.uint8)
    same = (new_height, new_width) == (height, width)
    square[:new_height, :new_width] = image if same else cv2.resize(image, (new_width, new_height))
    return square, np.array([width / new_width, height / new_height], np.float32)


def decoded(values: Sequence[NDArray[Any]], shape: Sequence[int], min_score: float) -> Found:
    """All guesses that are sure enough, the surest first, in px of what was shown.

    Args:
        values: the nine outputs; with or without a first axis of length 1.
        shape: height and width of what was shown.
        min_score: from 0 to 1.
    """
    parts = []
    for level, stride in enumerate(STRIDES):
        scores, boxes, points = (
            values[level + kind * len(STRIDES)].reshape(-1, width) for kind, width in enumerate(_WIDTHS)
        )
        places = _places(shape, stride)
        if len(scores) != len(places):
            raise ValueError(f"SCRFD answers {len(scores)} guesses at stride {stride}, not {len(places)}")
        sure = np.flatnonzero(scores[:, 0] >= min_score)
        reach, at = boxes[sure] * stride, places[sure]
        corners = np.concatenate([at - reach[:, :2], at + reach[:, 2:]], axis=1)
        parts.append((corners, at[:, None] + points[sure].reshape(-1, 5, 2) * stride, scores[sure, 0]))
    found = Found(*(np.concatenate(kind) for kind in zip(*parts, strict=True)))
    return found.taken(np.argsort(-found.scores, kind="stable"))


def _places(shape: Sequence[int], stride: int) -> NDArray[np.float32]:
    """Where each guess is, x and y (m 2), row by row."""
    rows, columns = np.divmod(np.arange(shape[0] // stride * (shape[1] // stride)), shape[1] // stride)
    return np.repeat(np.stack([columns, rows], axis=1), GUESSES, axis=0).astype(np.float32) * stride


def _one_each(found: Found) -> Found:
    """Of guesses that overlap, the surest."""
    if not len(found.scores):
        return found
    boxes = np.concatenate([found.boxes[:, :2], found.sides], axis=1).astype(float)
    kept = cv2.dnn.NMSBoxes(boxes.tolist(), found.scores.astype(float).tolist(), 0.0, OVERLAP)
    return found.taken(np.asarray(kept, np.intp).reshape(-1))


def _session(path: Path, placement: Placement) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = max(1, int(placement.cpus)), 1
    options.log_severity_level = 3  # it warns of each constant that it folds
    wanted = ["CPUExecutionProvider"]
    if placement.device != "cpu" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        wanted.insert(0, "CUDAExecutionProvider")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=wanted)
    except Exception as error:  # its errors share no base of their own
        raise ValueError(f"onnxruntime cannot use {path.name}: {error}") from error
