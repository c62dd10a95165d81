"""Pixels become a model's input on the device that runs it, so that every stage sees what its model was trained on.

Published models were trained on pictures that Pillow made smaller: first across, then down, each time rounded to whole
levels. Doing the same with torch's antialiased filters ends within one level (1/255) of Pillow, seldom two; a single
pass in floating point strays by up to three. The arithmetic is the same on the CPU and on a GPU.

Shapes: n pictures, h height, w width, s the model's side; pixels RGB uint8 n h w 3, a model's input n 3 s s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.columns import Image
from pipeline.device.copying import Phase, untimed, upload
from pipeline.stage import Placement

if TYPE_CHECKING:
    import torch

Triple = tuple[float, float, float]

LONGEST = 8  # sides to one: a longer panorama is first cut to its middle, lest a strip of 1 by 10,000 grow to 1.5 GB
PART_BYTES = 64 << 20  # of pixels resized at once; as float32 they take four times as much


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What a model wants done to a picture."""

    side: int  # px, of the square it looks at
    mean: Triple  # of R, G, B, in shares of 255
    std: Triple
    method: str = "bicubic"  # or bilinear; antialiased, as Pillow's
    crop: bool = True  # the middle of the picture, its short side as long as `side`; else squeezed into the square


def prepare(
    images: Sequence[Image], how: Preparation, placement: Placement, dtype: torch.dtype, phase: Phase = untimed
) -> torch.Tensor:
    """Pictures of any sizes as one input of a model: n 3 s s on the device, normalised.

    Pictures of one size travel and are resized together; a picture's values do not depend on its neighbours.

    Args:
        images: h w 3 each.
        how: what the model wants.
        placement: the device where the work is done and the result lies, and whether pixels are staged for it in
            page-locked memory.
        dtype: of the result; all arithmetic before is float32.
        phase: times the copies to the device as an upload.
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
    """Pixels (n h w 3 uint8) resized and cut: n 3 s s float32, whole levels 0 to 255.

    Sides and offsets are those of torchvision's Resize and CenterCrop, which OpenAI's CLIP uses (clip/clip.py,
    `_transform`): the long side is rounded down, the offset to the nearest even.
    """
    height, width = resized(pixels.shape[1], pixels.shape[2], how)
    top, left = (round((side - how.side) / 2) for side in (height, width))
    levels = pixels.permute(0, 3, 1, 2).float()
    levels = _resize(levels, (levels.shape[2], width), how.method)[:, :, :, left : left + how.side]
    return _resize(levels, (height, how.side), how.method)[:, :, top : top + how.side]


def resized(height: int, width: int, how: Preparation) -> tuple[int, int]:
    """Height and width of a picture before it is cut."""
    if not how.crop:
        return how.side, how.side
    short = min(height, width)
    return int(how.side * height / short), int(how.side * width / short)


def middle(image: Image) -> Image:
    """A view of a picture without the ends of a panorama longer than `LONGEST` times its short side."""
    longest = LONGEST * min(image.shape[:2])
    top, left = (max(0, side - longest) // 2 for side in image.shape[:2])
    return image[top : top + longest, left : left + longest]


def _resize(levels: torch.Tensor, size: tuple[int, int], method: str) -> torch.Tensor:
    from torch.nn.functional import interpolate

    # a half goes up, as in Pillow; torch's own rounding would take it to the even level
    return interpolate(levels, size, mode=method, antialias=True).add_(0.5).floor_().clamp_(0, 255)


def _alike(images: Sequence[Image]) -> Iterator[list[int]]:
    """Numbers of pictures of one size, at most `PART_BYTES` of them at once."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, image in enumerate(images):
        groups.setdefault(image.shape, []).append(index)
    for group in groups.values():
        most = max(1, PART_BYTES // images[group[0]].nbytes)
        yield from (group[start : start + most] for start in range(0, len(group), most))
