"""Crops for inpainting: each contains its part of the mask with a margin, and is pasted back to its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.inpaint.crops import GRID, Framing, cut, mask_crops
from tests.support.inpaint_factory import COLOUR, echo, fill, make, noise, paint, rectangle


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_crops_contain_the_mask_and_do_not_overlap(data):
    height, width = data.draw(st.integers(1, 400)), data.draw(st.integers(1, 400))
    mask = np.zeros((height, width), bool)
    for _ in range(data.draw(st.integers(0, 5))):
        top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
        mask[top : top + data.draw(st.integers(1, 60)), left : left + data.draw(st.integers(1, 200))] = True
    how = Framing(margin=data.draw(st.sampled_from([0, 0.25])), min_margin=data.draw(st.integers(0, 40)), longest=128)
    answered = np.zeros(mask.shape, int)
    for crop in mask_crops(mask, how):
        answered[crop.own] += 1
        for own, view, side, length in zip(crop.own, crop.view, mask.shape, crop.size, strict=True):
            assert 0 <= view.start <= own.start < own.stop <= view.stop <= side
            assert 0 < length <= 128
            assert length % GRID == 0 or (view.start, view.stop) == (0, side)
        image, shown = cut(np.where(mask, 255, 0).astype(np.uint8)[:, :, None].repeat(3, axis=2), mask, crop)
        assert image.shape[:2] == shown.shape == crop.size
        assert (image[~shown] == 0).all(), "the object must not show through a reduced pixel"
    assert answered.max(initial=0) <= 1
    assert (answered[mask] == 1).all()


def test_the_margin_is_a_share_of_the_region_with_a_minimum():
    mask = rectangle(2000, 2000, 900, 1000, 800, 1200)
    for margin, least, expected in ((0.25, 0, 100), (0.25, 128, 128), (0, 7, 7)):
        (crop,) = mask_crops(mask, Framing(margin=margin, min_margin=least, longest=1024))
        assert crop.own == (slice(900 - expected, 1000 + expected), slice(800 - expected, 1200 + expected))


# Pasting


@pytest.mark.parametrize("size", [(700, 900), (333, 1500), (2000, 310)])
def test_reduced_crops_are_pasted_to_their_place(size):
    """An image linear in both directions survives reduction and enlargement; one pixel off is a difference of 1 to
    3."""
    down, across = np.meshgrid(*(np.arange(side) / max(size) for side in size), indexing="ij")
    image = np.rint(np.stack([255 * down, 255 * across, 127 * (down + across)], axis=2)).astype(np.uint8)
    mask = rectangle(*size, size[0] // 10, size[0] - 33, 57, size[1] - size[1] // 8)
    shapes = []

    def listen(images, masks):
        shapes.extend(one.shape for one in images)
        return echo(images, masks)

    painted, _ = paint(make(listen, max_side=256, min_margin=10), image, mask)
    assert max(max(shape[:2]) for shape in shapes) == 256
    assert np.abs(painted.astype(int) - image).max() <= 2


def test_unreduced_crops_are_pasted_exactly():
    image = noise(500, 700)
    mask = rectangle(500, 700, 0, 90, 600, 700) | rectangle(500, 700, 300, 420, 10, 200)
    painted, _ = paint(make(echo), image, mask)
    assert (painted == image).all()


def test_a_small_mask_in_a_huge_frame_is_a_small_crop():
    image = np.full((3000, 4000, 3), 128, np.uint8)
    mask = rectangle(3000, 4000, 100, 160, 3900, 3950) | rectangle(3000, 4000, 2500, 2600, 300, 420)
    shapes = []

    def listen(images, masks):
        shapes.extend(one.shape[:2] for one in images)
        return fill(images, masks)

    painted, _ = paint(make(listen), image, mask)
    assert len(shapes) == 2 and max(max(shape) for shape in shapes) <= 448
    assert (painted[mask] == COLOUR).all()
