"""Parts of mask selection, against the same rules in plain loops."""

from __future__ import annotations

import cv2
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln_stages.segment import mask_proposals
from tests.support.stages.sam import image_reference as reference


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(0, 40), threshold=st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0]))
def test_suppression_is_the_greedy_rule(seed, count, threshold):
    draw = np.random.default_rng(seed)
    low = draw.integers(0, 6, (count, 2))
    boxes = np.concatenate([low, low + draw.integers(1, 6, (count, 2))], axis=1).astype(float)
    scores = draw.integers(0, 5, count) / 4  # many ties
    kept = mask_proposals.non_max_suppression(torch.from_numpy(boxes), torch.from_numpy(scores), threshold)
    assert kept.tolist() == reference.suppressed(boxes.tolist(), scores.tolist(), threshold)


def test_suppression_of_many_boxes_is_computed_in_parts(monkeypatch):
    draw = np.random.default_rng(0)
    low = draw.random((500, 2))
    boxes, scores = np.concatenate([low, low + draw.random((500, 2)) / 2], axis=1), draw.random(500)
    monkeypatch.setattr(mask_proposals, "IOU_ROWS", 64)
    kept = mask_proposals.non_max_suppression(torch.from_numpy(boxes), torch.from_numpy(scores), 0.5)
    assert kept.tolist() == reference.suppressed(boxes.tolist(), scores.tolist(), 0.5)
    assert 10 < len(kept) < 400


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), least=st.integers(1, 40), share=st.sampled_from([0.05, 0.4, 0.6, 0.95]))
def test_removal_of_small_regions_equals_flood_filling(seed, least, share):
    mask = np.random.default_rng(seed).random((12, 17)) < share
    changed, expected = reference.without_small_regions(mask, least)
    after = mask_proposals.remove_small_regions(mask, least)
    assert changed <= (after is not mask)
    if 0 < expected.sum() < least:  # all islands are small; of several largest, any may stay
        near = cv2.dilate(after.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
        assert after.sum() == expected.sum() and not (near & mask & ~after).any()
    else:
        assert (after == expected).all()


@settings(max_examples=60, deadline=None)
@given(height=st.integers(1, 4000), width=st.integers(1, 4000), layers=st.integers(0, 3), overlap=st.floats(0, 0.99))
def test_crops_are_the_published_ones_and_not_empty(height, width, layers, overlap):
    ours = [(layer, *box) for layer, box in mask_proposals.crop_boxes(height, width, layers, overlap)]
    theirs = reference.crop_boxes(height, width, layers, overlap)
    assert ours == [one for one in theirs if one[1] < one[3] and one[2] < one[4]]
