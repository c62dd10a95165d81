"""Resizing and cropping of pixels on a device, as Pillow does it.

Published models were trained on images resized by Pillow: first horizontally, then vertically, each time rounded to
whole levels. The same steps with torch's antialiased filters differ by at most one level (1/255), rarely two. A single
floating-point pass differs by up to three. The arithmetic is the same on the CPU and on a GPU.

Images of one size take nine operations. Crops of objects and mixed albums have a size each, so that a GPU would wait
for launches. For them each axis is a product with a matrix of weights for each image. The weights are Pillow's filters,
made on the device.

Shapes: n images, h height and w width (the largest of several), s the model's side; pixels RGB uint8 n h w 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from framekiln.contract.columns import Image
from framekiln.device.lazy import torch

STEP = 128  # px: images share a call if their sides, rounded up to this, are equal
Triple = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """The preprocessing that a model needs."""

    side: int  # px, side of the model's square input
    mean: Triple  # means of R, G, B, in fractions of 255
    std: Triple
    method: str = "bicubic"  # bicubic or bilinear; antialiased, as Pillow's
    crop: bool = True  # resize the short side to `side` and crop the centre; else resize both sides to `side`


def fit(pixels: torch.Tensor, how: Preparation) -> torch.Tensor:
    """Return pixels (n h w 3 uint8) resized and cropped: n 3 s s float32, whole levels from 0 to 255.

    Sides and offsets are those of torchvision's Resize and CenterCrop, as in OpenAI's CLIP (clip/clip.py,
    `_transform`). The long side is rounded down, the offset to the nearest even number.
    """
    height, width = resized(pixels.shape[1], pixels.shape[2], how)
    top, left = (round((side - how.side) / 2) for side in (height, width))
    levels = pixels.permute(0, 3, 1, 2).float()
    levels = _resize(levels, (levels.shape[2], width), how.method)[:, :, :, left : left + how.side]
    return _resize(levels, (height, how.side), how.method)[:, :, top : top + how.side]


def resized(height: int, width: int, how: Preparation) -> tuple[int, int]:
    """Return the height and width of an image before it is cropped."""
    if not how.crop:
        return how.side, how.side
    short = min(height, width)
    return int(how.side * height / short), int(how.side * width / short)


def _resize(levels: torch.Tensor, size: tuple[int, int], method: str) -> torch.Tensor:
    from torch.nn.functional import interpolate

    return _round(interpolate(levels, size, mode=method, antialias=True))


def padded(images: Sequence[Image]) -> Image:
    """Return images (h w 3 each) in the upper left corners of n h w 3 uint8."""
    height, width = (max(image.shape[axis] for image in images) for axis in (0, 1))
    result = np.zeros((len(images), height, width, 3), np.uint8)
    for whole, image in zip(result, images, strict=True):
        whole[: image.shape[0], : image.shape[1]] = image
    return result


def fit_mixed(pixels: torch.Tensor, shapes: Sequence[tuple[int, int]], how: Preparation) -> torch.Tensor:
    """Return `padded` images (n h w 3 uint8) of these heights and widths resized and cropped.

    The result is n 3 s s float32, with whole levels from 0 to 255.
    """
    sizes = np.array([(*shape, *resized(*shape, how)) for shape in shapes], np.float32)  # n 4: old, new
    axes = torch.from_numpy(sizes).to(pixels.device, non_blocking=True)
    count, height, width = pixels.shape[:3]
    down, across = (_compute_weights(axes[:, axis::2], side, how) for axis, side in ((0, height), (1, width)))
    levels = pixels.permute(0, 3, 1, 2).reshape(count, 3 * height, width).float()
    levels = _round(torch.bmm(levels, across.transpose(1, 2)))  # n 3h s
    columns = levels.view(count, 3, height, how.side).permute(0, 2, 1, 3).reshape(count, height, -1)
    levels = _round(torch.bmm(down, columns))  # n s 3s
    return levels.view(count, how.side, 3, how.side).permute(0, 2, 1, 3)


def _compute_weights(lengths: torch.Tensor, longest: int, how: Preparation) -> torch.Tensor:
    """Return the weight of each old pixel of a line in each new one (n s `longest`); 0 beyond an image's own pixels.

    `lengths`: n 2, a line's length before and after resizing.
    """
    old, new = lengths[:, :1, None], lengths[:, 1:, None]
    scale = old / new
    first = ((new - how.side) / 2).round()  # first row and column of the crop
    places = torch.arange(longest, device=lengths.device, dtype=torch.float32)
    centres = (torch.arange(how.side, device=lengths.device)[:, None] + first + 0.5) * scale
    weights = _evaluate_filter((places + 0.5 - centres) / scale.clamp(min=1), how.method) * (places < old)
    return weights / weights.sum(dim=2, keepdim=True)


def _evaluate_filter(x: torch.Tensor, method: str) -> torch.Tensor:
    """Return Pillow's filters: bicubic with a = -0.5 (Keys 1981), or bilinear."""
    x = x.abs()
    if method == "bilinear":
        return (1 - x).clamp(min=0)
    inner, outer = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return inner.where(x < 1, outer.where(x < 2, 0.0))


def _round(levels: torch.Tensor) -> torch.Tensor:
    # halves round up, as in Pillow; torch.round would round them to the even level
    return levels.add_(0.5).floor_().clamp_(0, 255)
