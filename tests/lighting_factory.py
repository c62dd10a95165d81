"""What tests of light share: real photos, the same under more or other light, and what the stage says of them."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
import pyarrow as pa

from pipeline.columns import pack, reduction
from pipeline.stage import Placement
from stages.lighting import Lighting
from stages.nets.photometry import LINEAR
from tests.material import media


@cache
def photo(name: str) -> np.ndarray:
    """As frame_224 holds it."""
    image = cv2.cvtColor(cv2.imread(str(media(name))), cv2.COLOR_BGR2RGB)
    by = reduction(*image.shape[:2], 224)
    return cv2.resize(image, (-(-image.shape[1] // by), -(-image.shape[0] // by)), interpolation=cv2.INTER_AREA)


def light(*images: np.ndarray, **config) -> list[dict]:
    stage = Lighting(Lighting.Config(**config))
    stage.setup({}, Placement())
    return stage(pa.table({"frame_224": pack(images)})).to_pylist()


def gain(image: np.ndarray, by) -> np.ndarray:
    """A photo under `by` times as much light: one factor, or one for each of R, G, B."""
    level = np.clip(LINEAR[image] * by, 0, 1)
    encoded = np.where(level <= 0.0031308, 12.92 * level, 1.055 * level ** (1 / 2.4) - 0.055)
    return np.rint(255 * encoded).astype(np.uint8)
