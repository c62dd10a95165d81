"""Photos that installed packages bring (scikit-learn's and matplotlib's), and takes made of them.

They serve each test that needs any photo, clip or sound, so that it runs wherever the product is installed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import cv2
import numpy as np

from framekiln.media import samples as make

PHOTOS = tuple(make.photos())  # china.jpg: buildings; flower.jpg; grace_hopper.jpg: a portrait


def photo_file(name: str) -> Path:
    """The file of a photo."""
    return make.photos()[name]


@cache
def photo(name: str) -> np.ndarray:
    """A photo in RGB."""
    image = cv2.cvtColor(cv2.imread(str(photo_file(name))), cv2.COLOR_BGR2RGB)
    image.setflags(write=False)
    return image


@cache
def take(name: str, count: int, height: int = 288, width: int = 360, *, step: float = 0.7) -> tuple[np.ndarray, ...]:
    """Frames of a hand-held take: a window that drifts over a photo, trembles by a pixel and has grain."""
    image, rng = photo(name), np.random.default_rng(0)
    scale = max((height + 8) / image.shape[0], (width + 8 + step * count) / image.shape[1])
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    large = cv2.resize(image, None, fx=scale, fy=scale, interpolation=way)
    frames = []
    for number in range(count):
        top = (large.shape[0] - height) // 2 + int(rng.integers(-1, 2))
        left = 2 + int(step * number) + int(rng.integers(-1, 2))
        window = large[top : top + height, left : left + width]
        frames.append(np.clip(window + rng.normal(0, 2, window.shape), 0, 255).astype(np.uint8))
    return tuple(frames)


@cache
def mosaic(side: int = 32) -> np.ndarray:
    """A photo whose square tiles are shuffled, so that each part has texture and no side is brighter."""
    tiles = photo("china.jpg")[: 427 // side * side, : 640 // side * side]
    rows, columns = tiles.shape[0] // side, tiles.shape[1] // side
    tiles = tiles.reshape(rows, side, columns, side, 3).swapaxes(1, 2).reshape(-1, side, side, 3)
    order = np.random.default_rng(0).permutation(len(tiles))
    return tiles[order].reshape(rows, columns, side, side, 3).swapaxes(1, 2).reshape(rows * side, columns * side, 3)
