"""Outlines of any mask, filled again by counting the edges to the left of each pixel."""

from __future__ import annotations

import cv2
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from framekiln.export.outlines import join, trace


def fill(rings, shape):
    """The pixels (h w) that rings along pixel edges enclose: each vertical edge turns all pixels at its right."""
    mask = np.zeros(shape, bool)
    for ring in rings:
        for (x0, y0), (x1, y1) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            if x0 == x1:
                mask[min(y0, y1) : max(y0, y1), x0:] ^= True
            else:
                assert y0 == y1
    return mask


masks = arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=st.integers(0, 1))


@given(masks)
def test_parts_and_holes_give_the_mask_again(mask):
    outlines = trace(mask)
    assert np.array_equal(fill([*outlines.parts, *outlines.holes], mask.shape), mask.astype(bool))
    filled = fill(outlines.parts, mask.shape)
    assert (filled >= mask.astype(bool)).all() and bool(outlines.holes) == (filled.sum() > mask.sum())


@given(masks)
def test_parts_are_those_that_share_an_edge(mask):
    count, labels = cv2.connectedComponents(mask, connectivity=4)
    assert len(trace(mask).parts) == count - 1
    assert all(fill(trace(labels == number).parts, mask.shape).any() for number in range(1, count))


def test_parts_are_sorted_and_joined():
    mask = np.zeros((4, 9), np.uint8)
    mask[0, 0] = mask[2:, 3:6] = mask[0, 8] = 1
    parts = trace(mask).parts
    assert len(parts) == 3 and parts[0].tolist() == [[3, 2], [3, 4], [6, 4], [6, 2]]
    ring = join(parts)
    assert len(ring) == 5 * 3 + 2 and ring[-1].tolist() == parts[0][0].tolist()
    assert trace(np.eye(2, dtype=np.uint8)).holes == [] and len(trace(np.eye(2, dtype=np.uint8)).parts) == 2
    assert len(trace(np.eye(2, dtype=np.uint8)[::-1]).parts) == 2
