"""What tests of light share: real photos, the same under more or other light, and what the stage says of them."""

from __future__ import annotations

import math
from functools import cache

import cv2
import numpy as np
import pyarrow as pa

from framekiln.contract.columns import pack, reduction
from framekiln.contract.placement import Placement
from framekiln_stages.lighting.photometry import LINEAR
from framekiln_stages.lighting.stage import Lighting
from tests.support.media import photos
from tests.support.media.material import picture


@cache
def photo(name: str) -> np.ndarray:
    """As frame_224 holds it."""
    image = picture(name) if "/" in name else photos.photo(name)
    by = reduction(*image.shape[:2], 224)
    return cv2.resize(image, (-(-image.shape[1] // by), -(-image.shape[0] // by)), interpolation=cv2.INTER_AREA)


def even_scene() -> np.ndarray:
    """A scene of real texture that is lit from no side, as frame_224 holds it."""
    return cv2.resize(64 + photos.mosaic(4)[:384, :384] // 2, (224, 224), interpolation=cv2.INTER_AREA)


def light(*images: np.ndarray, **config) -> list[dict]:
    stage = Lighting(Lighting.Config(**config))
    stage.setup({}, Placement())
    return stage(pa.table({"frame_224": pack(images)})).to_pylist()


def gain(image: np.ndarray, by) -> np.ndarray:
    """A photo under `by` times as much light: one factor, or one for each of R, G, B."""
    level = np.clip(LINEAR[image] * by, 0, 1)
    encoded = np.where(level <= 0.0031308, 12.92 * level, 1.055 * level ** (1 / 2.4) - 0.055)
    return np.rint(255 * encoded).astype(np.uint8)


def ball(height, width, angle, *, at=(0.5, 0.5), radius=0.35, wall=0.2, front=0.6, more=()) -> np.ndarray:
    """A matt sphere, lit from an angle and somewhat from the front, before a wall that is even or given by place.

    `more`: angles and strengths of further lamps.
    """
    y, x = np.mgrid[:height, :width]
    radius *= min(height, width)
    across, up = (x - at[0] * width) / radius, (at[1] * height - y) / radius
    inside = across**2 + up**2 < 1
    depth = np.sqrt(np.clip(1 - across**2 - up**2, 0, None))
    shade = np.zeros((height, width))
    for lamp, strength in ((angle, 1.0), *more):
        turn = math.radians(lamp)
        side = math.sqrt(1 - front**2) * (across * math.cos(turn) + up * math.sin(turn))
        shade += strength * np.clip(side + front * depth, 0, None)
    codes = 255 * np.where(inside, 0.05 + 0.7 * shade, wall) ** (1 / 2.2)
    return np.repeat(codes.astype(np.uint8)[..., None], 3, axis=2)
