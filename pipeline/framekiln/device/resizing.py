"""Resizing and cropping of pixels of one size on a device, as Pillow does it.

Published models were trained on images resized by Pillow: first horizontally, then vertically, each time rounded to
whole levels. The same steps with torch's antialiased filters differ by at most one level (1/255), rarely two. A single
floating-point pass differs by up to three. The arithmetic is the same on the CPU and on a GPU.

Shapes: n images, h height, w width, s the model's side; pixels RGB uint8 n h w 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Triple = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """The preprocessing that a model needs."""

    side: int  # px, of the model's square input
    mean: Triple  # of R, G, B, in fractions of 255
    std: Triple
    method: str = "bicubic"  # or bilinear; antialiased, as Pillow's
    crop: bool = True  # resize the short side to `side` and crop the centre; else resize both sides to `side`


def fit(pixels: torch.Tensor, how: Preparation) -> torch.Tensor:
    """Return pixels (n h w 3 uint8) resized and cropped: n 3 s s float32, whole levels from 0 to 255.

    Sides and offsets are those of torchvision's Resize and CenterCrop, which OpenAI's CLIP uses (clip/clip.py,
    `_transform`): the long side is rounded down, the offset to the nearest even number.
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

    # halves round up, as in Pillow; torch.round would round them to the even level
    return interpolate(levels, size, mode=method, antialias=True).add_(0.5).floor_().clamp_(0, 255)
