"""A detector with YuNet's outputs that needs no training: it finds green squares, in place of faces."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from framekiln_stages.faces.alignment import SIDE, TEMPLATE
from framekiln_stages.nets.faces.yunet_cells import STRIDES
from tests.support.stages.faces.onnx_factory import Builder

SQUARE = 32  # px of the network's input; half as large ones are found too
HEADS = {"cls": slice(1), "obj": slice(1), "bbox": slice(1, 5), "kps": slice(5, 15)}
GREEN = np.array([-0.5, 1, -0.5]) / 255  # pure green is 1, grey is 0
TILE = 4  # px; its mean green is what all filters see


def yunet(path: Path) -> Path:
    """Save the network: the green of tiles, a convolution of it for each output, and sigmoids of the scores."""
    b = Builder()
    mean = np.broadcast_to(GREEN[:, None, None] / TILE**2, (1, 3, TILE, TILE)).astype(np.float32)
    green = b.add("Conv", "input", b.weight(mean), kernel_shape=[TILE] * 2, strides=[TILE] * 2, pads=[0] * 4)
    filters = {stride: square_filters(stride) for stride in STRIDES}
    outputs = {}
    for name, values in HEADS.items():
        for stride, (weight, bias) in filters.items():
            count, kernel = len(bias[values]), weight.shape[2]
            step, pads = stride // TILE, [(kernel - stride // TILE) // 2] * 4
            named = (b.weight(each[values].astype(np.float32)) for each in (weight, bias))
            x = b.add("Conv", green, *named, kernel_shape=[kernel] * 2, strides=[step] * 2, pads=pads)
            x = b.add("Transpose", x, perm=[0, 2, 3, 1])
            x = b.add("Reshape", x, b.weight(np.array([1, -1, count], np.int64)))
            if name in ("cls", "obj"):
                b.add("Sigmoid", x)
            b.nodes[-1].output[0] = f"{name}_{stride}"
            outputs[f"{name}_{stride}"] = [None, None, count]
    return b.save_all(path, ["n", 3, "h", "w"], outputs)


def square_filters(stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (15 1 k k) and biases of score, box and points, for squares of two strides.

    A score is the green of a square around the cell's middle less twice that of the ring around it. Moments of the
    green say where the square is, so that all cells which see it agree. A face is half as large again.
    """
    points = (TEMPLATE / SIDE - 0.5) * 3 + 0.5
    bias = np.array([-3, 0.5, 0.5, np.log(3), np.log(3), *points.ravel()])
    if 2 * stride > SQUARE:
        return np.zeros((15, 1, stride // TILE, stride // TILE)), bias - 20 * (np.arange(15) == 0)
    kernel = 4 * stride // TILE
    at = (np.arange(kernel) - (kernel - 1) / 2) * TILE
    inside = (np.abs(at) < stride)[:, None] & (np.abs(at) < stride)
    score = 12 * np.where(inside, 1 / inside.sum(), -2 / (~inside).sum())
    moments = np.stack(np.meshgrid(at, at)) * TILE**2 / (4 * stride**3)
    planes = np.stack([score, *moments, 0 * score, 0 * score, *np.tile(moments, (5, 1, 1))])
    return planes[:, None], bias


def marked(image: np.ndarray, *squares: tuple[int, ...]) -> np.ndarray:
    """A picture with green squares: x and y of the first corner, then the side in px (32) and the level (255)."""
    result = image.copy()
    for x, y, side, level in ((*square, *(SQUARE, 255)[len(square) - 2 :]) for square in squares):
        result[y : y + side, x : x + side] = (0, level, 0)
    return result
