"""YuNet's network in torch, for GPUs: in OpenCV it runs on one CPU core, and the GPU waits for it.

Input and output are processed as in FaceDetectorYN, so that both detect the same faces but for rounding.

Shapes: n images of one size; h w of the network's input, padded to multiples of 32; m cells of all three grids.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from pipeline.contract.placement import Placement
from pipeline.device import Phase, ready, untimed, upload
from stages.nets.faces.detections import FaceDetections, Image, Size, grid_cells
from stages.nets.faces.onnx_module import OnnxGraph
from stages.nets.faces.yunet import OVERLAP, input_size, rows_to_faces
from stages.shared.grouping import indices_by_key

# opencv, modules/objdetect/src/face_detect.cpp
STRIDES = (8, 16, 32)
MAX_CANDIDATES = 5000  # before non-maximum suppression
_OUTPUTS = 4  # of each grid: class, object, box, points


class TorchYuNet:
    """The network on a device, in batches of one size.

    Always in fp32, whatever the placement's precision: it has 76,000 weights only, and scores are compared with a
    threshold.

    Args:
        path: an ONNX file with variable height and width.
        min_score: from 0 to 1.
        placement: its device.
        phase: counts the time of a block.

    Raises:
        ValueError: the file's graph is not supported.
    """

    def __init__(self, path: Path, min_score: float, placement: Placement, phase: Phase = untimed) -> None:
        self._min_score, self._placement, self._phase = min_score, placement, phase
        self._net = ready(OnnxGraph(path, outputs=_OUTPUTS * len(STRIDES)), placement, torch.float32)

    def __call__(self, images: Sequence[Image], sides: Sequence[int]) -> list[FaceDetections]:
        """Run the network; see `stages.nets.faces.yunet.RunNetwork`."""
        sizes = [input_size(image, side) for image, side in zip(images, sides, strict=True)]
        faces: dict[int, FaceDetections] = {}
        for group in indices_by_key((*image.shape, *size) for image, size in zip(images, sizes, strict=True)):
            size = sizes[group[0]]
            outputs = self._infer([images[i] for i in group], size)
            with self._phase("postprocess"):
                for i, cells in zip(group, outputs, strict=True):
                    faces[i] = rows_to_faces(decode_rows(cells, size, self._min_score), images[i], size)
        return [faces[i] for i in range(len(images))]

    def _infer(self, images: Sequence[Image], size: Size) -> NDArray[np.float32]:
        """Return the network's output for images of one size, scaled to another: n m 16."""
        with torch.inference_mode():
            with self._phase("upload"):
                levels = upload(images, self._placement.device, pin=self._placement.pin_memory)
            with self._phase("infer"):  # includes scaling, since the GPU does it
                # image by image, as a whole batch in fp32 would take too much memory
                scaled = [area_resize(image.permute(2, 0, 1).flip(0).float(), size) for image in levels]
                cells = self._forward(torch.stack(scaled))
            with self._phase("download"):
                return cells.cpu().numpy()

    def _forward(self, pixels: Tensor) -> Tensor:
        """Return class, object, box (4) and points (10) of each cell, n m 16, from BGR levels n 3 h w."""
        down, right = (-side % STRIDES[-1] for side in pixels.shape[2:])
        pixels = functional.pad(pixels, (0, right, 0, down))
        outputs = self._net.all_outputs(pixels)
        grids = [torch.cat(outputs[i :: len(STRIDES)], dim=2) for i in range(len(STRIDES))]
        return torch.cat(grids, dim=1)


def area_resize(pixels: Tensor, size: Size) -> Tensor:
    """Return levels c h w at a smaller size, each the rounded mean of the area that it covers: OpenCV's INTER_AREA.

    As two matrix products; on the CPU it takes 10 ms for an image of 2 MP.
    """
    height, width = pixels.shape[1:]
    if size == (height, width):
        return pixels
    down, across = (
        torch.from_numpy(coverage(*pair)).to(pixels.device) for pair in zip((height, width), size, strict=True)
    )
    return (down @ pixels @ across.T).round()


@functools.lru_cache(maxsize=64)  # images come in few sizes
def coverage(old: int, new: int) -> NDArray[np.float32]:
    """Return the weight of each old pixel of a line in each new one: new old."""
    edges = np.linspace(0, old, new + 1)
    starts, ends = np.arange(old), np.arange(1, old + 1)
    covered = np.minimum(edges[1:, None], ends) - np.maximum(edges[:-1, None], starts)
    return (covered.clip(0) / (old / new)).astype(np.float32)


def decode_rows(cells: NDArray[np.float32], size: Size, min_score: float) -> NDArray[np.float32]:
    """Return the rows of FaceDetectorYN (n 15), highest score first, for the output (m 16) of an input of this size."""
    scores = np.sqrt(cells[:, 0].clip(0, 1) * cells[:, 1].clip(0, 1))
    chosen = np.flatnonzero(scores >= min_score)
    places, strides = (part[chosen] for part in _cell_places(size))
    values, scores = cells[chosen], scores[chosen]
    with np.errstate(over="ignore"):
        extent = np.exp(values[:, 4:6]) * strides
    start = (places + values[:, 2:4]) * strides - extent / 2
    points = (values[:, 6:].reshape(-1, 5, 2) + places[:, None]) * strides[:, None]
    rows = np.concatenate([start, extent, points.reshape(-1, 10), scores[:, None]], axis=1)
    rows = rows[np.isfinite(rows).all(axis=1)]
    boxes = np.trunc(rows[:, :4]).astype(float).tolist()  # FaceDetectorYN compares boxes in whole pixels
    ranks = rows[:, 14].astype(float).tolist()
    kept = cv2.dnn.NMSBoxes(boxes, ranks, 0.0, OVERLAP, 1.0, MAX_CANDIDATES) if boxes else ()
    return rows[np.asarray(kept, np.intp).reshape(-1)]


def _cell_places(shape: Sequence[int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return column and row of each cell (m 2), and the stride of its grid in px (m 1)."""
    places, strides = [], []
    for stride in STRIDES:
        height, width = (-(-side // STRIDES[-1]) * STRIDES[-1] // stride for side in shape)
        places.append(grid_cells(height, width))
        strides.append(np.full((height * width, 1), stride, np.float32))
    return np.concatenate(places), np.concatenate(strides)
