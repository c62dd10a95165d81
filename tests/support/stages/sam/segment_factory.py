"""Shared by the tests of masks: a photo, a stage with a small model, and its masks."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
import pyarrow as pa

from framekiln.contract.columns import pack
from framekiln.contract.placement import Placement
from framekiln_stages.segment.stage import Segment
from framekiln_stages.shared.masks import decode
from tests.support.media.photos import photo
from tests.support.stages.sam import image_reference as reference

SIZE = (120, 160)
ANY = {"pred_iou_thresh": 0, "stability_score_thresh": 0}
POINTS = [(0.2, 0.3), (0.7, 0.6), (0.5, 0.9), (0.21, 0.3)]


@cache
def small_photo():
    """Return a photo small enough for loops over pixels."""
    return cv2.resize(photo("china.jpg"), SIZE[::-1], interpolation=cv2.INTER_AREA)


def stage_of(path, placement=None, chunks=None, **given):
    """Return a stage with the model of the fixture `sam`, on whole frames, with four points."""
    stage = Segment(Segment.Config(**{"model": "toy", "size": 0, "points_per_side": 2} | given))
    stage.chunk_sizes.update(chunks or {})
    stage.setup({"toy": path}, placement or Placement())
    return stage


def call(stage, *images, **columns):
    given = {"height": [len(image) for image in images], "width": [image.shape[1] for image in images]} | columns
    return stage(pa.table({stage.pixels: pack(list(images))} | given).select(stage.inputs))


def found(stage, *images, **columns):
    return call(stage, *images, **columns)["masks"].to_pylist()


def iou(a, b):
    return (a & b).sum() / max(1, (a | b).sum())


def assert_whole(mask, image):
    """Check a mask's area and box against its pixels."""
    pixels = decode(mask["segmentation"])
    assert mask["area"] == pixels.sum()
    expected = np.array(reference.box_of(pixels)) / np.tile(pixels.shape[::-1], 2) if pixels.any() else np.zeros(4)
    assert np.allclose(list(mask["box"].values()), expected)
