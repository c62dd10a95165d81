"""The way of frames through a model, by phase.

Pixels are uploaded as they were decoded, and resized and normalised on the device. It is waited for after each phase,
so that phases can be told apart; nothing overlaps. With buffer pools each array is made once and used again: the
staging buffer (page-locked on a GPU), the pixels and levels on the device, the outputs on the host. Without them all
are made anew for each batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from framekiln.contract.columns import Image
from framekiln.contract.phases import PhaseClock
from framekiln.device import torch
from framekiln.lab.measure.precision import UnsupportedError
from framekiln.lab.measure.prepared import Prepared
from framekiln.lab.models.factory import tensors_in

PHASES = ("decode", "upload", "preprocess", "infer", "download", "postprocess", "encode")
MEAN, STD = 0.45, 0.225  # of all channels, in fractions of 255: ImageNet's on average
_LEAST_MAP = 8  # px: a smaller output is no map of the image
_HALF_TINT = np.array((20, 100, 45), np.uint8)  # half of a green, which is added to half of the frame


@dataclass(kw_only=True)
class Buffers:
    """Tensors by name, kept from batch to batch where they are pooled."""

    pooled: bool
    _kept: dict[str, torch.Tensor] = field(default_factory=dict)

    def take(self, name: str, shape: Sequence[int], dtype: torch.dtype, device: str, *, pin: bool = False) -> Any:
        """Return a tensor with undefined values."""
        kept = self._kept.get(name) if self.pooled else None
        if kept is None or tuple(kept.shape) != tuple(shape):
            kept = torch.empty(tuple(shape), dtype=dtype, device=device, pin_memory=pin and self.pooled)
            self._kept[name] = kept
        return kept


@dataclass(kw_only=True)
class FrameCall:
    """A prepared model that is called on frames; each eye of a frame is an item of the batch."""

    prepared: Prepared
    eyes: int = 1
    buffers: Buffers = field(default_factory=lambda: Buffers(pooled=True))
    clock: PhaseClock = field(default_factory=PhaseClock)

    def __post_init__(self) -> None:
        self._input = image_input(self.prepared.inputs)

    @property
    def frames(self) -> int:
        """Number of frames that one call can take."""
        return len(self._input) // self.eyes

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a part of the way, until the device is idle."""
        self.clock.begin()
        try:
            yield
            self.prepared.wait()
        finally:
            self.clock.end(name)

    def __call__(self, frames: Sequence[Image]) -> list[Image]:
        """Return frames (h w 3) with the model's map of the image laid over them, where it has one."""
        with torch.inference_mode():
            with self.phase("upload"):
                pixels = self._upload(frames)
            with self.phase("preprocess"):
                self._preprocess(pixels)
            with self.phase("infer"):
                outputs = self.prepared.call()
            with self.phase("download"):
                arrays = [
                    self.buffers.take(
                        f"output {i}", tensor.shape, tensor.dtype, "cpu", pin=tensor.device.type != "cpu"
                    ).copy_(tensor, non_blocking=True)
                    for i, tensor in enumerate(tensors_in(outputs))
                ]
            with self.phase("postprocess"):
                area = next((array for array in arrays if _is_map(array, self._input)), None)
                if area is None:
                    return list(frames)
                maps = area.float().flatten(1, -3).mean(1) if area.dim() > 3 else area.float()
                return [self._drawn(frame, maps[i * self.eyes : (i + 1) * self.eyes]) for i, frame in enumerate(frames)]

    def _upload(self, frames: Sequence[Image]) -> torch.Tensor:
        shape, device = (len(frames), *frames[0].shape), self.prepared.device
        staging = self.buffers.take("staging", shape, torch.uint8, "cpu", pin=device != "cpu")
        np.stack(frames, out=staging.numpy())
        if device == "cpu":
            return staging
        return self.buffers.take("pixels", shape, torch.uint8, device).copy_(staging, non_blocking=True)

    def _preprocess(self, pixels: torch.Tensor) -> None:
        """Write the eyes of frames (n h w 3) into the model's input; items beyond them keep what they had."""
        from torch.nn.functional import interpolate

        count, height, width, _ = pixels.shape
        views = pixels.view(count, height, self.eyes, width // self.eyes, 3).transpose(1, 2).flatten(0, 1)
        levels = self.buffers.take(
            "levels", (len(views), 3, height, width // self.eyes), torch.float32, self.prepared.device
        )
        levels.copy_(views.permute(0, 3, 1, 2))
        small = interpolate(levels, self._input.shape[2:], mode="bilinear")
        self._input[: len(small)].copy_(small.div_(255).sub_(MEAN).div_(STD))

    def _drawn(self, frame: Image, maps: torch.Tensor) -> Image:
        """Tint the half of a frame where each eye's map is above 0, the threshold of masks."""
        from torch.nn.functional import interpolate

        height, width = frame.shape[0], frame.shape[1] // self.eyes
        inside = interpolate(maps[:, None], (height, width), mode="nearest")[:, 0].numpy() > 0
        result = frame.copy()
        tinted = (frame >> 1) + _HALF_TINT  # whole arrays: picking pixels takes several times as long
        for eye, mask in enumerate(inside):
            place = np.s_[:, eye * width : (eye + 1) * width]
            np.copyto(result[place], tinted[place], where=mask[..., None])
        return result


def image_input(inputs: Any) -> torch.Tensor:
    """Return the tensor of images (n 3 h w) in a model's inputs.

    Raises:
        UnsupportedError: there is none.
    """
    found = [tensor for tensor in tensors_in(inputs) if tensor.dim() == 4 and tensor.shape[1] == 3]
    if not found:
        raise UnsupportedError("its inputs are no images (batch 3 height width), so frames of a clip do not fit")
    return found[0]


def shares(phases_s: Mapping[str, float]) -> dict[str, float]:
    """Return each phase's share of the sum, 0 to 1, in the order of the way."""
    whole = sum(phases_s.values())
    return {name: phases_s[name] / whole for name in PHASES if name in phases_s and whole}


def _is_map(array: torch.Tensor, images: torch.Tensor) -> bool:
    """Return whether an output has a value for each place of an image: sides of its proportions, unlike tokens."""
    if array.dim() < 3 or len(array) != len(images) or not array.is_floating_point():
        return False
    (rows, columns), (height, width) = array.shape[-2:], images.shape[-2:]
    return min(rows, columns) >= _LEAST_MAP and rows * width == columns * height
