"""Crops of instances: equal to a reference by pixel, and on the blossom of a photo."""

from __future__ import annotations

from fractions import Fraction

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framekiln_stages.categorize.instance_crops import Window, context_crop, mask_box, masked_crop, share_box, square
from framekiln_stages.shared.masks import encode
from tests.support.media.photos import photo

FILL = np.array([122, 117, 104], np.uint8)


@pytest.fixture(scope="module", name="blossom")
def _blossom():
    """A photo around a blossom, and the blossom's mask, h w: the largest orange region."""
    image = np.ascontiguousarray(photo("flower.jpg")[45:405, 125:485])
    orange = image[:, :, 0].astype(int) - image[:, :, 2] > 60
    _, regions, figures, _ = cv2.connectedComponentsWithStats(orange.astype(np.uint8))
    return image, regions == 1 + figures[1:, cv2.CC_STAT_AREA].argmax()


def coded(mask):
    return encode([mask])[0]


def plain(image, mask, window, *, hide):
    """Crop pixel by pixel, with the mask at the centre of each pixel."""
    result = np.empty((window.side, window.side, 3), np.uint8)
    for row in range(window.side):
        for column in range(window.side):
            y, x = row + window.top, column + window.left
            there = 0 <= y < image.shape[0] and 0 <= x < image.shape[1]
            middle = [Fraction(2 * at + 1, 2 * length) for at, length in zip((y, x), image.shape[:2], strict=True)]
            own = there and mask[tuple(int(at * side) for at, side in zip(middle, mask.shape, strict=True))]
            result[row, column] = image[y, x] if there and (own or not hide) else FILL
    return result


@st.composite
def scenes(draw):
    """Draw an image, a mask of another size with at least one pixel, and a margin."""
    sides = [draw(st.integers(1, 24)) for _ in range(4)]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    image = rng.integers(0, 256, (*sides[:2], 3), dtype=np.uint8)
    top, left = draw(st.integers(0, sides[2] - 1)), draw(st.integers(0, sides[3] - 1))
    bottom, right = draw(st.integers(top, sides[2] - 1)), draw(st.integers(left, sides[3] - 1))
    mask = np.zeros(sides[2:], bool)
    mask[top : bottom + 1, left : right + 1] = rng.random((bottom + 1 - top, right + 1 - left)) < 0.6
    mask[top, left] = mask[bottom, right] = True
    return image, mask, draw(st.sampled_from([0.0, 0.1, 0.2, 1.0]))


@given(scenes())
def test_crops_equal_a_plain_reference(scene):
    image, mask, margin = scene
    window = square(coded(mask), *image.shape[:2], margin)
    assert np.array_equal(context_crop(image, coded(mask), margin, FILL), plain(image, mask, window, hide=False))
    found, expected = masked_crop(image, coded(mask), margin, FILL), plain(image, mask, window, hide=True)
    if (expected == FILL).all():  # the mask contains the centre of no pixel
        expected = plain(image, mask, window, hide=False)
    assert np.array_equal(found, expected)


@given(scenes())
def test_windows_contain_the_box_and_stay_in_the_image_if_they_fit(scene):
    image, mask, margin = scene
    top, left, side = square(coded(mask), *image.shape[:2], margin)
    for start, length, axis in ((top, image.shape[0], 1), (left, image.shape[1], 0)):
        own = np.flatnonzero(mask.any(axis=axis)) / mask.shape[1 - axis]
        assert start <= own[0] * length + 1e-9
        assert start + side >= (own[-1] + 1 / mask.shape[1 - axis]) * length - 1e-9
        if side <= length:
            assert start >= 0 and start + side <= length
        else:
            assert start <= 0 and start + side >= length, "the window leaves out a part of the image that fits"


def test_margins_are_shares_of_the_longer_side():
    mask = np.zeros((100, 100), bool)
    mask[40:60, 45:55] = True
    assert square(coded(mask), 100, 100, 0.0) == Window(top=40, left=40, side=20)
    assert square(coded(mask), 100, 100, 0.25) == Window(top=35, left=35, side=30)
    assert square(coded(mask), 200, 300, 0.1) == Window(top=76, left=126, side=48)  # a box of 40 x 30 around (100, 150)


def test_boxes_are_those_of_the_pixels(blossom):
    _, mask = blossom
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    assert mask_box(coded(mask)) == (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    assert share_box(coded(mask))["x1"] == (columns[-1] + 1) / mask.shape[1]
    assert mask_box(coded(np.zeros((5, 7), bool))) is None and share_box(coded(np.zeros((5, 7), bool))) is None
    with pytest.raises(ValueError):
        square(coded(np.zeros((5, 7), bool)), 5, 7, 0.1)


def test_a_masked_crop_shows_the_blossom_alone(blossom):
    image, mask = blossom
    window = square(coded(mask), *image.shape[:2], 0.1)
    crop = masked_crop(image, coded(mask), 0.1, FILL)
    shown = (crop != FILL).any(axis=2)
    inside = mask[window.top : window.top + window.side, window.left : window.left + window.side]
    assert inside.sum() == mask.sum(), "some of the blossom lies outside"
    assert 0.99 * mask.sum() < shown.sum() <= mask.sum() and not shown[~inside].any()
    assert np.array_equal(crop[inside], image[mask])


def test_a_context_crop_shows_the_blossom_and_what_is_around_it(blossom):
    image, mask = blossom
    top, left, side = square(coded(mask), *image.shape[:2], 0.1)
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    assert top < rows[0] and rows[-1] < top + side - 1 and left < columns[0] and columns[-1] < left + side - 1
    assert np.array_equal(context_crop(image, coded(mask), 0.1, FILL), image[top : top + side, left : left + side])


def test_a_window_larger_than_the_image_contains_all_of_it(blossom):
    image, mask = blossom
    crop = context_crop(image, coded(mask), 0.2, FILL)
    assert crop.shape[0] == crop.shape[1] > len(image)
    top, left, _ = square(coded(mask), *image.shape[:2], 0.2)
    assert np.array_equal(crop[-top : len(image) - top, -left : len(image) - left], image)
    assert (crop == FILL).all(axis=2).sum() >= crop.shape[0] ** 2 - len(image) ** 2


@pytest.mark.parametrize("scale", [2, 3])
def test_masks_of_another_size_give_the_same_crop(blossom, scale):
    image, mask = blossom
    larger = np.kron(mask, np.ones((scale, scale), bool))  # the same outline at a higher resolution
    for crop in (masked_crop, context_crop):
        assert np.array_equal(crop(image, coded(larger), 0.1, FILL), crop(image, coded(mask), 0.1, FILL))
    enlarged = np.kron(image, np.ones((scale, scale, 1), np.uint8))
    found = masked_crop(enlarged, coded(mask), 0.0, FILL)
    shown = (found != FILL).any(axis=2).sum()
    assert 0.99 * scale**2 * mask.sum() < shown <= scale**2 * mask.sum()


def test_a_window_inside_the_image_is_not_copied(blossom):
    image, mask = blossom
    assert np.shares_memory(context_crop(image, coded(mask), 0.0, FILL), image)
