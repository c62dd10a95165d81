"""YuNet's network by torch: on a GPU, where OpenCV's would keep the card waiting for one core.

What surrounds the network is FaceDetectorYN's, so that both find the same faces but for the rounding of their sums.

Shapes: n pictures of one size, h w as they are shown, filled up to multiples of 32; m places of all three grids.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from pipeline.device import Phase, ready, untimed, upload
from pipeline.stage import Placement
from stages.nets.onnx_graph import OnnxGraph
from stages.nets.yunet import OVERLAP, Found, Image, Size, size_shown, unscaled

# opencv, modules/objdetect/src/face_detect.cpp
STRIDES = (8, 16, 32)
MOST = 5000  # guesses that boxes of overlapping ones are left out of
_KINDS = 4  # outputs of a grid: class, object, box, points


class Torch:
    """The network on a device, on pictures of one size at once.

    In fp32 whatever the placement's precision: it has 76,000 weights, and a face's score is compared with a threshold.

    Args:
        path: an ONNX file whose height and width are open.
        min_score: from 0 to 1.
        placement: its device.
        phase: counts the time of a block.

    Raises:
        ValueError: the file is no graph that is covered.
    """

    def __init__(self, path: Path, min_score: float, placement: Placement, phase: Phase = untimed) -> None:
        self._min_score, self._placement, self._phase = min_score, placement, phase
        self._net = ready(OnnxGraph(path, answers=_KINDS * len(STRIDES)), placement, torch.float32)

    def __call__(self, images: Sequence[Image], sides: Sequence[int]) -> list[Found]:
        """See `stages.nets.yunet.Show`."""
        shown = [size_shown(image, side) for image, side in zip(images, sides, strict=True)]
        found: dict[int, Found] = {}
        for group in _alike([(*image.shape, *size) for image, size in zip(images, shown, strict=True)]):
            size = shown[group[0]]
            values = self._values([images[i] for i in group], size)
            with self._phase("postprocess"):
                for i, guesses in zip(group, values, strict=True):
                    found[i] = unscaled(decoded(guesses, size, self._min_score), images[i], size)
        return [found[i] for i in range(len(images))]

    def _values(self, images: Sequence[Image], size: Size) -> NDArray[np.float32]:
        """What the network says of pictures of one size when it is shown them with another: n m 16."""
        with torch.inference_mode():
            with self._phase("upload"):
                levels = upload(images, self._placement.device, pin=self._placement.pin_memory)
            with self._phase("infer"):  # with what makes its input, since the card does it
                shown = [
                    averaged(one.permute(2, 0, 1).flip(0).float(), size) for one in levels
                ]  # one at a time is large
                guesses = self._guesses(torch.stack(shown))
            with self._phase("download"):
                return guesses.cpu().numpy()

    def _guesses(self, pixels: Tensor) -> Tensor:
        """Class, object, box (4) and points (10) of each place, n m 16, from BGR levels n 3 h w."""
        down, right = (-side % STRIDES[-1] for side in pixels.shape[2:])
        pixels = functional.pad(pixels, (0, right, 0, down))
        answers = self._net.answers(pixels)
        grids = [torch.cat(answers[i :: len(STRIDES)], dim=2) for i in range(len(STRIDES))]
        return torch.cat(grids, dim=1)


def averaged(pixels: Tensor, size: Size) -> Tensor:
    """Levels c h w at a smaller size, each the average of the area that it covers, whole: OpenCV's INTER_AREA.

    The processor takes 10 ms for what is shown of a picture of 2 MP; here it is two products of matrices.
    """
    height, width = pixels.shape[1:]
    if size == (height, width):
        return pixels
    down, across = (
        torch.from_numpy(shares(*pair)).to(pixels.device) for pair in zip((height, width), size, strict=True)
    )
    return (down @ pixels @ across.T).round()


@functools.lru_cache(maxsize=64)  # pictures come in few sizes
def shares(old: int, new: int) -> NDArray[np.float32]:
    """How far each of the old pixels of a line counts in each of the new ones: new old."""
    edges = np.linspace(0, old, new + 1)
    starts, ends = np.arange(old), np.arange(1, old + 1)
    covered = np.minimum(edges[1:, None], ends) - np.maximum(edges[:-1, None], starts)
    return (covered.clip(0) / (old / new)).astype(np.float32)


def decoded(guesses: NDArray[np.float32], shape: Size, min_score: float) -> NDArray[np.float32]:
    """Rows as FaceDetectorYN gives them (n 15), the surest first, from guesses (m 16) on what was shown (h w)."""
    scores = np.sqrt(guesses[:, 0].clip(0, 1) * guesses[:, 1].clip(0, 1))
    sure = np.flatnonzero(scores >= min_score)
    places, strides = (part[sure] for part in _places(shape))
    mine, scores = guesses[sure], scores[sure]
    with np.errstate(over="ignore"):
        extent = np.exp(mine[:, 4:6]) * strides
    start = (places + mine[:, 2:4]) * strides - extent / 2
    points = (mine[:, 6:].reshape(-1, 5, 2) + places[:, None]) * strides[:, None]
    rows = np.concatenate([start, extent, points.reshape(-1, 10), scores[:, None]], axis=1)
    rows = rows[np.isfinite(rows).all(axis=1)]
    boxes = np.trunc(rows[:, :4]).astype(float).tolist()  # it compares boxes of whole pixels
    kept = cv2.dnn.NMSBoxes(boxes, rows[:, 14].astype(float).tolist(), 0.0, OVERLAP, 1.0, MOST) if boxes else ()
    return rows[np.asarray(kept, np.intp).reshape(-1)]


def _places(shape: Sequence[int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Column and row of each place (m 2), and its grid's step in px (m 1)."""
    places, strides = [], []
    for stride in STRIDES:
        height, width = (-(-side // STRIDES[-1]) * STRIDES[-1] // stride for side in shape)
        rows, columns = np.divmod(np.arange(height * width), width)
        places.append(np.stack([columns, rows], axis=1).astype(np.float32))
        strides.append(np.full((height * width, 1), stride, np.float32))
    return np.concatenate(places), np.concatenate(strides)


def _alike(sizes: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Numbers of those with one size."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, size in enumerate(sizes):
        groups.setdefault(size, []).append(i)
    yield from groups.values()
