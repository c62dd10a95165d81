"""YuNet's network in torch, for GPUs: in OpenCV it runs on one CPU core, and the GPU waits for it.

Input and output are processed as in FaceDetectorYN, so that both detect the same faces except for rounding.

Shapes: n images of one size; h w of the network's input, padded to multiples of 32; m cells of all three grids.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from framekiln.contract import Placement
from framekiln.device import Batches, Phase, indices_by_key, keep_while_used, ready, untimed
from framekiln_stages.nets.faces.detections import FaceDetections, Image, Size
from framekiln_stages.nets.faces.onnx_module import OnnxGraph
from framekiln_stages.nets.faces.second_look import views_on_device
from framekiln_stages.nets.faces.yunet import input_size, rows_to_faces
from framekiln_stages.nets.faces.yunet_cells import STRIDES, Cells, face_rows
from framekiln_stages.shared.device_images import DeviceImages

ROWS, UNIT = 8, 3 * 1280 * 1280  # inputs of a call, of so many levels each: 70 to 100 MB
SCALED_PIXELS = 8 << 20  # of images that are scaled at once: 0.1 GB in fp32
_OUTPUTS = 1, 1, 4, 10  # values of a cell: class, object, box, points


class TorchYuNet:
    """The network on a device, in batches of one size.

    Always in fp32, whatever the placement's precision: it has only 76,000 weights, and scores are compared with a
    threshold. Never compiled, since each size of images would need its own compilation. On a GPU it is never
    channels_last. cuDNN would take two seconds to plan each new shape of input, instead of 0.04 s. A call is as fast
    (H200, torch 2.11).

    Args:
        path: an ONNX file with variable height and width; None for `EmptyYuNet`.
        min_score: from 0 to 1.
        placement: its device.
        phase: counts the time of a block.

    Raises:
        ValueError: the file's graph is not supported.
    """

    def __init__(self, path: Path | None, min_score: float, placement: Placement, phase: Phase = untimed) -> None:
        self._min_score, self._placement, self._phase = min_score, placement, phase
        self._on_device = placement.device != "cpu"
        own = replace(placement, channels_last=placement.channels_last and not self._on_device)
        net = OnnxGraph(path, outputs=len(_OUTPUTS) * len(STRIDES)) if path else EmptyYuNet()
        self._net: OnnxGraph | EmptyYuNet = ready(net, own, torch.float32)
        self._batches = Batches(self._forward, placement, ROWS, unit=UNIT, eager=True)

    def __call__(
        self, images: Sequence[Image], sides: Sequence[int], uploaded: DeviceImages | None = None
    ) -> list[FaceDetections]:
        """Run the network; see `framekiln_stages.nets.faces.second_look.RunNetwork`.

        `images`: h w 3 each; one that occurs several times is uploaded once. `sides`: of each. `uploaded`: images on
        the device, the same arrays among them.
        """
        if uploaded is None:
            once = {id(image): image for image in images}
            uploaded = DeviceImages(list(once.values()), self._placement, self._phase)
        numbers = uploaded.numbers(images)
        sizes = [input_size(image, side) for image, side in zip(images, sides, strict=True)]
        groups = indices_by_key((*image.shape, *size) for image, size in zip(images, sizes, strict=True))
        with torch.inference_mode():
            outputs = [
                Cells(self._run_net(uploaded.stacked([numbers[i] for i in group]), size), size)
                for group, size in ((group, sizes[group[0]]) for group in groups)
            ]
            rows = face_rows(outputs, self._min_score, self._phase) if outputs else []
        found = dict(zip((i for group in groups for i in group), rows, strict=True))
        with self._phase("postprocess"):
            return [rows_to_faces(found[i], images[i].shape, sizes[i]) for i in range(len(images))]

    def look(self, images: DeviceImages, owners: NDArray[np.int64], squares: NDArray[np.int64]) -> list[FaceDetections]:
        """Return the faces in views of squares, and in the mirrored views; see `nets.faces.second_look`."""
        with torch.inference_mode():
            with self._phase("infer"):
                views = views_on_device(images, owners, squares)
                views = torch.cat([views, views.flip(2)])
            size = (views.shape[1], views.shape[2])
            rows = face_rows([Cells(self._run_net(views, size), size)], self._min_score, self._phase)
        return [rows_to_faces(own, size, size) for own in rows]

    def _run_net(self, pixels: Tensor, size: Size) -> Tensor:
        """Return the network's output for images of one size (n h w 3 uint8), scaled to another: n m 16."""
        at_once = max(1, SCALED_PIXELS // (pixels.shape[1] * pixels.shape[2]))
        with self._phase("infer"):  # includes scaling, since the GPU does it
            parts = [
                area_resize(part.permute(0, 3, 1, 2).flip(1).float(), size) for part in torch.split(pixels, at_once)
            ]
            levels = parts[0] if len(parts) == 1 else torch.cat(parts)
            return self._batches(levels)

    def _forward(self, pixels: Tensor) -> Tensor:
        """Return class, object, box (4) and points (10) of each cell, n m 16, from BGR levels n 3 h w."""
        down, right = (-side % STRIDES[-1] for side in pixels.shape[2:])
        pixels = functional.pad(pixels, (0, right, 0, down))
        if self._on_device:
            pixels = pixels.contiguous()  # images come with their channels last
        outputs = self._net.all_outputs(pixels)
        grids = [torch.cat(outputs[i :: len(STRIDES)], dim=2) for i in range(len(STRIDES))]
        return torch.cat(grids, dim=1)


class EmptyYuNet(nn.Module):
    """YuNet's layers (libfacedetection.train) with weights of zero: they take a detector's time and find nothing."""

    def __init__(self) -> None:
        super().__init__()
        pool = nn.MaxPool2d(2)
        stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), _build(16, 16), pool)
        first = nn.Sequential(stem, _build(16, 16), _build(16, 64), _build(64, 64), _build(64, 64))
        before = (first, nn.Identity(), nn.Identity())
        self.stages = nn.ModuleList(nn.Sequential(part, pool, _build(64, 64), _build(64, 64)) for part in before)
        self.joins = nn.ModuleList(_build(64, 64) for _ in STRIDES)
        self.shared = nn.ModuleList(_build(64, 64) for _ in STRIDES)
        self.heads = nn.ModuleList(nn.ModuleList(_build(64, count)[:2] for _ in STRIDES) for count in _OUTPUTS)
        for weight in self.parameters():
            nn.init.zeros_(weight)

    def all_outputs(self, pixels: Tensor) -> list[Tensor]:
        """Return the outputs of the published graph, n m c: of each kind, for each grid."""
        grids: list[Tensor] = []
        for stage in self.stages:
            grids.append(stage(grids[-1] if grids else pixels))
        for i in (2, 1, 0):
            above = functional.interpolate(grids[i + 1], scale_factor=2) if i < 2 else 0
            grids[i] = self.joins[i](grids[i] + above)
        shared = [layer(grid) for layer, grid in zip(self.shared, grids, strict=True)]
        values = (head(grid) for heads in self.heads for head, grid in zip(heads.children(), shared, strict=True))
        return [value.permute(0, 2, 3, 1).flatten(1, 2) for value in values]


def _build(inside: int, width: int) -> nn.Sequential:
    across = nn.Conv2d(inside, width, 1)
    return nn.Sequential(across, nn.Conv2d(width, width, 3, padding=1, groups=width), nn.ReLU())


def area_resize(pixels: Tensor, size: Size) -> Tensor:
    """Return levels ... h w at a smaller size, each the rounded mean of its area: OpenCV's INTER_AREA.

    As two matrix products; on the CPU it takes 10 ms for an image of 2 MP.
    """
    height, width = pixels.shape[-2:]
    if size == (height, width):
        return pixels
    sides = zip((height, width), size, strict=True)
    down, across = (keep_while_used(coverage_on(*pair, str(pixels.device))) for pair in sides)
    return (down @ pixels @ across.T).round()


@functools.lru_cache(maxsize=16)  # 20 MB each for a side of 4,000 px; images come in few sizes
def coverage_on(old: int, new: int, device: str) -> Tensor:
    """Return the weights of `coverage` on a device, uploaded once."""
    with torch.inference_mode(mode=False):
        return torch.from_numpy(coverage(old, new)).to(device)


@functools.lru_cache(maxsize=64)  # images come in few sizes
def coverage(old: int, new: int) -> NDArray[np.float32]:
    """Return the weight of each old pixel of a line in each new one: new old."""
    edges = np.linspace(0, old, new + 1)
    starts, ends = np.arange(old), np.arange(1, old + 1)
    covered = np.minimum(edges[1:, None], ends) - np.maximum(edges[:-1, None], starts)
    return (covered.clip(0) / (old / new)).astype(np.float32)
