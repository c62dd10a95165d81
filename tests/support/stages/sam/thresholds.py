"""Thresholds of `segment` that a small difference of two devices or programs does not cross."""

from __future__ import annotations

import numpy as np

from tests.support.stages.sam import image_reference as reference
from tests.support.stages.sam.segment_factory import ANY

LEAST_GAP = 1e-3  # between values on both sides of a threshold
UNCLEAN = {"min_mask_region_area": 0}


def settled(predict, image, **given):
    """Return settings with work for each filter, and with no value within rounding of a threshold."""
    chosen = ANY | {"box_nms_thresh": 1, "crop_nms_thresh": 1} | given
    for name, kind, low, high in (
        ("mask_threshold", "logits", 0.988, 0.992),
        ("pred_iou_thresh", "iou", 0.1, 0.3),
        ("stability_score_thresh", "stability", 0.1, 0.3),
        ("box_nms_thresh", "nms", 0.6, 0.9),
        ("crop_nms_thresh", "crop_nms", 0.05, 0.4),
    ):
        judged = reference.generate(predict, image, reference.Settings(**chosen | UNCLEAN)).judged[kind]
        if len(judged):
            values = np.unique(np.concatenate([np.ravel(value) for value in judged]))
            least, most = (low, high) if "nms" in kind else np.quantile(values, (low, high))
            values = np.array([least, *values[(values > least) & (values < most)], most])
            widest = np.diff(values).argmax()
            assert np.diff(values)[widest] > LEAST_GAP
            chosen[name] = float(values[widest : widest + 2].mean())
    return chosen
