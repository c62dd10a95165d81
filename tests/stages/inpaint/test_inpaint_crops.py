"""Crops for inpainting: each contains its part of the mask with a margin, and is pasted back to its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln_stages.inpaint.crops import GRID, Framing, cut, mask_crops, shapes
from tests.support.stages.inpaint_factory import COLOUR, Listener, echo, fill, make, noise, paint, rectangle


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
    listen = Listener(echo)
    painted, _ = paint(make(listen, max_side=256, min_margin=10), image, mask)
    assert max(max(one.shape[:2]) for one in listen.images) == 256
    assert np.abs(painted.astype(int) - image).max() <= 2


def test_unreduced_crops_are_pasted_exactly():
    image = noise(500, 700)
    mask = rectangle(500, 700, 0, 90, 600, 700) | rectangle(500, 700, 300, 420, 10, 200)
    painted, _ = paint(make(echo), image, mask)
    assert (painted == image).all()


def test_a_small_mask_in_a_huge_frame_is_a_small_crop():
    image = np.full((3000, 4000, 3), 128, np.uint8)
    mask = rectangle(3000, 4000, 100, 160, 3900, 3950) | rectangle(3000, 4000, 2500, 2600, 300, 420)
    listen = Listener(fill)
    painted, _ = paint(make(listen), image, mask)
    assert len(listen.images) == 2 and max(max(one.shape[:2]) for one in listen.images) <= 512
    assert (painted[mask] == COLOUR).all()


# Few shapes


@pytest.mark.parametrize("longest", [64, 128, 320, 512, 1024, 2048])
def test_few_shapes_are_eight_at_most_and_hold_every_crop(longest):
    found = shapes(longest)
    assert 1 <= len(found) <= 8 and len(set(found)) == len(found)
    assert (longest, longest) in found
    assert all(side % GRID == 0 and side <= longest for shape in found for side in shape)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_crops_of_few_shapes_show_the_frame_and_mirror_what_is_missing(data):
    height, width = data.draw(st.integers(1, 700)), data.draw(st.integers(1, 700))
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    mask = np.zeros((height, width), bool)
    mask[top : top + data.draw(st.integers(1, 400)), left : left + data.draw(st.integers(1, 400))] = True
    (crop,) = mask_crops(mask, Framing(margin=0.25, min_margin=20, longest=256, few=True))
    assert crop.shape in shapes(256)
    assert all(size <= whole for size, whole in zip(crop.size, crop.shape, strict=True))
    image, region = cut(noise(height, width), mask, crop)
    assert image.shape[:2] == region.shape == crop.shape
    rows, columns = crop.size
    assert (image[rows : 2 * rows] == image[:rows][::-1][: crop.shape[0] - rows]).all()
    assert (image[:, columns : 2 * columns] == image[:, :columns][:, ::-1][:, : crop.shape[1] - columns]).all()
    assert region[:rows, :columns].any()


def test_a_frame_smaller_than_the_shape_is_painted_whole():
    image, mask = noise(90, 150), rectangle(90, 150, 30, 60, 40, 90)
    listen = Listener(echo)
    painted, _ = paint(make(listen, shapes="few", dilate=0, feather=0), image, mask)
    (seen,), (region,) = listen.images, listen.masks
    assert seen.shape[:2] == region.shape == (256, 256)
    assert region.sum() > mask.sum(), "the mirrored object is masked too"
    assert (painted == image).all()
    painted, _ = paint(make(shapes="few", dilate=0, feather=0), image, mask)
    assert (painted[mask] == COLOUR).all() and (painted[~mask] == image[~mask]).all()
