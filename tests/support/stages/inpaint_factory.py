"""Shared by the tests of inpainting: painters, masks, and a stage with them.

For tests of geometry a painter that fills in one colour, or returns its input, replaces the network.
"""

from __future__ import annotations

import cv2
import numpy as np
import pyarrow as pa
from scipy.ndimage import distance_transform_edt

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.inpaint.stage import Inpaint
from framekiln_stages.nets.lama.network import Sizes
from framekiln_stages.shared.masks import MASK, encode

COLOUR = np.array([10, 200, 90], np.float32)


def fill(images, masks):
    """Return one colour."""
    return np.stack([np.broadcast_to(COLOUR, image.shape) for image in images])


def echo(images, masks):
    """Return the input."""
    return np.stack(images).astype(np.float32)


class Listener:
    """A painter that keeps what it is given."""

    def __init__(self, painter):
        self._painter, self.images, self.masks = painter, [], []

    def __call__(self, images, masks):
        self.images += images
        self.masks += masks
        return self._painter(images, masks)


def make(painter=fill, **config):
    stage = Inpaint(Inpaint.Config(**{"region": "all", **config}))
    stage._paint = painter
    return stage


def network(**config):
    """Return the stage with a real, small network and random weights."""
    from framekiln_stages.nets.lama.runners import EagerLama

    return make(EagerLama(None, Placement(), 8, Sizes(width=8, blocks=1)), **config)


def values(*masks):
    """Return masks as values of MASK."""
    return [{"segmentation": coded, "area": int(mask.sum())} for coded, mask in zip(encode(masks), masks, strict=True)]


def table(frames, masks):
    return pa.table({"frame": pack(frames), "masks": pa.array(masks, pa.list_(MASK))})


def opened(data):
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def paint(stage, image, *masks):
    """Return the painted image and its share."""
    (row,) = stage(table([image], [values(*masks)])).to_pylist()
    return None if row["inpainted"] is None else opened(row["inpainted"]), row["inpainted_share"]


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def rectangle(height, width, top, bottom, left, right):
    mask = np.zeros((height, width), bool)
    mask[top:bottom, left:right] = True
    return mask


def grown(mask, px):
    """Dilate by another library."""
    return distance_transform_edt(~mask) <= px if mask.any() else mask


MASKS = [rectangle(60, 80, 0, 10, 0, 10), rectangle(60, 80, 20, 50, 30, 70), rectangle(60, 80, 52, 58, 5, 30)]
BARE = {"dilate": 0, "feather": 0}
