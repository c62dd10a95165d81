"""Aligned faces of a call: cut, embedded and measured, on the host or on the device with their images.

Both ways cut the same faces: levels differ by 2 at most, in less than 0.2 % of the pixels.

Shapes: n faces of a call; an aligned face is uint8 112 112 3; embeddings float32 n d of length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from framekiln.contract import Image
from framekiln.device import Phase, in_order, torch
from framekiln_stages.faces.alignment import (
    SIDE,
    THUMBNAIL,
    Transforms,
    align_face,
    contrast,
    contrast_on_device,
    crop_scales,
    encode_jpeg,
    luma_on_device,
    sharpness,
    sharpness_on_device,
    thumbnail,
    thumbnail_on_device,
)
from framekiln_stages.faces.recognizers import Embeddings, Recognizer
from framekiln_stages.shared.device_images import DeviceImages

LOOKS = 2 + THUMBNAIL**2  # numbers of a crop: sharpness, contrast and thumbnail
AT_ONCE = 128  # faces cut by the same operations: 0.3 GB
Chunks = Callable[[Sequence[int]], Iterator[Sequence[int]]]
"""Splits indices of faces into parts to embed at once."""


class Described(NamedTuple):
    """Results for aligned faces."""

    embeddings: Embeddings
    strengths: NDArray[np.floating]  # n; length of the network's output before it is scaled to 1
    sharpness: NDArray[np.float64]  # n
    contrast: NDArray[np.float64]  # n; contrast of eyes and mouth
    thumbnails: NDArray[np.uint8]  # n 256
    files: list[bytes]  # JPEG; empty if not wanted


class HostFaces:
    """Faces cut on the host, part by part, when they are embedded.

    `recognizer`: embeds them. `phase`: counts the time of a block. `keep`: whether their JPEG files are wanted.
    """

    def __init__(self, recognizer: Recognizer, phase: Phase, *, keep: bool) -> None:
        self._recognizer, self._phase, self._keep = recognizer, phase, keep
        self._faces: list[tuple[Image, NDArray[np.float64]]] = []

    def add(self, images: Sequence[Image], owners: NDArray[np.int64], transforms: Transforms) -> None:
        """Add faces; `owners`: the index of each face's image."""
        self._faces += [(images[owner], transform) for owner, transform in zip(owners, transforms, strict=True)]

    def describe(self, chunks: Chunks) -> Described:
        outputs: list[NDArray[np.floating]] = [np.empty((0, self._recognizer.length), np.float32)]
        looks, files = [np.empty((0, LOOKS))], list[bytes]()
        for numbers in chunks(range(len(self._faces))):
            with self._phase("preprocess"):
                crops = np.stack([align_face(*self._faces[i]) for i in numbers])
            outputs.append(self._recognizer.outputs(crops))  # it counts its own phases
            with self._phase("postprocess"):
                looks += [np.array([[sharpness(crop), contrast(crop), *thumbnail(crop)]]) for crop in crops]
                files += [encode_jpeg(crop) for crop in crops] if self._keep else []
        return _describe(self._recognizer, np.concatenate(outputs), np.concatenate(looks), files)


class DeviceFaces:
    """Faces cut on the device, all of some images at once, and downloaded after all are embedded.

    Args:
        recognizer: embeds them, in torch.
        phase: counts the time of a block.
        keep: whether their JPEG files are wanted.
    """

    def __init__(self, recognizer: Recognizer, phase: Phase, *, keep: bool) -> None:
        self._recognizer, self._phase, self._keep = recognizer, phase, keep
        self._crops: list[torch.Tensor] = []

    def add(self, images: DeviceImages, owners: NDArray[np.int64], transforms: Transforms) -> None:
        """Add faces; `owners`: the index of each face's image."""
        if len(owners):
            with self._phase("infer"):
                self._crops.append(aligned(images, owners, transforms))

    def describe(self, chunks: Chunks) -> Described:
        if not self._crops:
            none = np.empty((0, self._recognizer.length), np.float32)
            return _describe(self._recognizer, none, np.empty((0, LOOKS)), [])
        crops = torch.cat(self._crops)
        parts = [crops[numbers[0] : numbers[-1] + 1] for numbers in chunks(range(len(crops)))]
        with self._phase("infer"):
            vectors = torch.cat([self._recognizer.raw(part) for part in parts])
            lumas = [luma_on_device(part) for part in parts]
            sharp = torch.cat([sharpness_on_device(luma) for luma in lumas])
            bare = torch.cat([contrast_on_device(luma) for luma in lumas])
            small = torch.cat([thumbnail_on_device(luma) for luma in lumas])
            every = torch.cat([vectors.double(), sharp[:, None], bare[:, None], small], dim=1)
        with self._phase("download"):
            values = every.cpu().numpy()
            kept: Sequence[NDArray[np.uint8]] = list(crops.cpu().numpy()) if self._keep else []
        with self._phase("postprocess"):
            files = [encode_jpeg(crop) for crop in kept]
            return _describe(self._recognizer, values[:, :-LOOKS], values[:, -LOOKS:], files)


def _describe(
    recognizer: Recognizer, outputs: NDArray[np.floating], looks: NDArray[np.float64], files: list[bytes]
) -> Described:
    """Return results from the network's output (n d), of `LOOKS` numbers of each face, and of files."""
    strengths = np.linalg.norm(outputs, axis=1)
    sharp, bare, small = looks[:, 0], looks[:, 1], looks[:, 2:].astype(np.uint8)
    return Described(recognizer.normalized(outputs), strengths, sharp, bare, small, files)


def aligned(images: DeviceImages, owners: NDArray[np.int64], transforms: Transforms) -> torch.Tensor:
    """Return aligned faces as by `align_face`, n 112 112 3 uint8 on the device.

    `images`: on the device. `owners`: n, the image of each face. `transforms`: n 2 3.
    """
    scales = crop_scales(transforms)
    shrink = np.maximum((1 / np.maximum(scales, 1e-6)).astype(np.int64), 1)
    inverse = np.linalg.inv(transforms[:, :, :2])
    maps = np.concatenate([inverse, -inverse @ transforms[:, :, 2:]], axis=2)
    order, parts = [], []
    with torch.inference_mode():
        for numbers, sums in images.parts(owners):
            for start in range(0, len(numbers), AT_ONCE):
                own = numbers[start : start + AT_ONCE]
                parts.append(sums.bilinear(owners[own], maps[own], (SIDE, SIDE), shrink=shrink[own]))
                order.append(own)
        return in_order(parts, order)
