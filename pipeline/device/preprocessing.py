"""Resizing, cropping and normalising of pixels on the model's device, as in the model's training.

Published models were trained on images resized by Pillow: first horizontally, then vertically, each time rounded to
whole levels. The same steps with torch's antialiased filters differ by at most one level (1/255), rarely two. A single
floating-point pass differs by up to three. The arithmetic is the same on the CPU and on a GPU.

Shapes: n images, h height, w width, s the model's side; pixels RGB uint8 n h w 3, a model's input n 3 s s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.contract.columns import Image
from pipeline.contract.placement import Placement
from pipeline.device.transfer import Phase, untimed, upload

if TYPE_CHECKING:
    import torch

Triple = tuple[float, float, float]

LONGEST = 8  # aspect ratio: a longer panorama is first cropped, or a strip of 1 by 10,000 would grow to 1.5 GB
PART_BYTES = 64 << 20  # of pixels resized at once; four times as much as float32


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """The preprocessing that a model needs."""

    side: int  # px, of the model's square input
    mean: Triple  # of R, G, B, in fractions of 255
    std: Triple
    method: str = "bicubic"  # or bilinear; antialiased, as Pillow's
    crop: bool = True  # resize the short side to `side` and crop the centre; else resize both sides to `side`


def prepare(
    images: Sequence[Image], how: Preparation, placement: Placement, dtype: torch.dtype, phase: Phase = untimed
) -> torch.Tensor:
    """Return images of any sizes as one normalised input of a model (n 3 s s) on the device.

    Images of one size are uploaded and resized together. The values of an image do not depend on the others.

    Args:
        images: h w 3 each.
        how: the model's preprocessing.
        placement: its device and its `pin_memory`.
        dtype: of the result; the arithmetic before is float32.
        phase: times copies to the device as an upload.
    """
    import torch

    device = placement.device
    result = torch.empty((len(images), 3, how.side, how.side), dtype=dtype, device=device)
    mean = torch.tensor(how.mean, device=device).mul(255).view(3, 1, 1)
    std = torch.tensor(how.std, device=device).mul(255).view(3, 1, 1)
    ready = [middle(image) for image in images] if how.crop else list(images)
    for indices in _alike(ready):
        with phase("upload"):
            pixels = upload([ready[i] for i in indices], device, pin=placement.pin_memory)
        levels = fit(pixels, how)
        result[indices] = ((levels - mean) / std).to(dtype)
    return result


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


def middle(image: Image) -> Image:
    """Return a view of an image, cropped to `LONGEST` times its short side."""
    longest = LONGEST * min(image.shape[:2])
    top, left = (max(0, side - longest) // 2 for side in image.shape[:2])
    return image[top : top + longest, left : left + longest]


def _resize(levels: torch.Tensor, size: tuple[int, int], method: str) -> torch.Tensor:
    from torch.nn.functional import interpolate

    # halves round up, as in Pillow; torch.round would round them to the even level
    return interpolate(levels, size, mode=method, antialias=True).add_(0.5).floor_().clamp_(0, 255)


def _alike(images: Sequence[Image]) -> Iterator[list[int]]:
    """Yield the indices of images of one size, at most `PART_BYTES` at once."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, image in enumerate(images):
        groups.setdefault(image.shape, []).append(index)
    for group in groups.values():
        most = max(1, PART_BYTES // images[group[0]].nbytes)
        yield from (group[start : start + most] for start in range(0, len(group), most))
