"""Crops out of masks: by a plain reference, pixel by pixel, and on a photo whose bird was outlined by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stages.nets.instances import Window, box_of, context, masked, share_box, square
from stages.nets.masks import encode
from tests.material import media

FILL = np.array([122, 117, 104], np.uint8)


@pytest.fixture(scope="module", name="bird")
def _bird():
    """The photo and its mask, h w."""
    image, mask = (media(f"masks/bird_segmentation{kind}.bmp") for kind in ("", "_mask"))
    return np.asarray(Image.open(image).convert("RGB")), np.asarray(Image.open(mask)) > 1  # 1 and 2 lie along its edge


def coded(mask):
    return encode([mask])[0]


def plain(image, mask, window, *, hide):
    """The crop pixel by pixel: the mask is asked at the middle of each pixel."""
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
    """A picture, a mask of another size with at least one pixel, and a margin."""
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
    assert np.array_equal(context(image, coded(mask), margin, FILL), plain(image, mask, window, hide=False))
    found, expected = masked(image, coded(mask), margin, FILL), plain(image, mask, window, hide=True)
    if (expected == FILL).all():  # no pixel's middle lies in the mask
        expected = plain(image, mask, window, hide=False)
    assert np.array_equal(found, expected)


@given(scenes())
def test_windows_hold_the_box_and_stay_in_the_picture_where_they_fit(scene):
    image, mask, margin = scene
    top, left, side = square(coded(mask), *image.shape[:2], margin)
    for start, length, axis in ((top, image.shape[0], 1), (left, image.shape[1], 0)):
        own = np.flatnonzero(mask.any(axis=axis)) / mask.shape[1 - axis]
        assert start <= own[0] * length + 1e-9
        assert start + side >= (own[-1] + 1 / mask.shape[1 - axis]) * length - 1e-9
        if side <= length:
            assert start >= 0 and start + side <= length
        else:
            assert start <= 0 and start + side >= length, "some of the picture was left out for nothing"


def test_margins_are_shares_of_the_longer_side():
    mask = np.zeros((100, 100), bool)
    mask[40:60, 45:55] = True
    assert square(coded(mask), 100, 100, 0.0) == Window(top=40, left=40, side=20)
    assert square(coded(mask), 100, 100, 0.25) == Window(top=35, left=35, side=30)
    assert square(coded(mask), 200, 300, 0.1) == Window(top=76, left=126, side=48)  # a box of 40 x 30 around (100, 150)


def test_boxes_are_those_of_the_pixels(bird):
    _, mask = bird
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    assert box_of(coded(mask)) == (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    assert share_box(coded(mask))["x1"] == (columns[-1] + 1) / mask.shape[1]
    assert box_of(coded(np.zeros((5, 7), bool))) is None and share_box(coded(np.zeros((5, 7), bool))) is None
    with pytest.raises(ValueError, match="without pixels"):
        square(coded(np.zeros((5, 7), bool)), 5, 7, 0.1)


def test_a_masked_crop_shows_the_bird_alone(bird):
    image, mask = bird
    window = square(coded(mask), *image.shape[:2], 0.1)
    crop = masked(image, coded(mask), 0.1, FILL)
    shown = (crop != FILL).any(axis=2)
    inside = mask[window.top : window.top + window.side, window.left : window.left + window.side]
    assert inside.sum() == mask.sum(), "some of the bird lies outside"
    assert 0.99 * mask.sum() < shown.sum() <= mask.sum() and not shown[~inside].any()
    assert np.array_equal(crop[inside], image[mask])


def test_a_context_crop_shows_the_bird_and_what_is_around_it(bird):
    image, mask = bird
    top, left, side = square(coded(mask), *image.shape[:2], 0.1)
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    assert top < rows[0] and rows[-1] < top + side - 1 and left < columns[0] and columns[-1] < left + side - 1
    assert np.array_equal(context(image, coded(mask), 0.1, FILL), image[top : top + side, left : left + side])


def test_a_window_larger_than_the_picture_holds_all_of_it(bird):
    image, mask = bird
    crop = context(image, coded(mask), 0.2, FILL)
    assert crop.shape[0] == crop.shape[1] > len(image)
    top, left, _ = square(coded(mask), *image.shape[:2], 0.2)
    assert np.array_equal(crop[-top : len(image) - top, -left : len(image) - left], image)
    assert (crop == FILL).all(axis=2).sum() >= crop.shape[0] ** 2 - len(image) ** 2


@pytest.mark.parametrize("scale", [2, 3])
def test_masks_of_another_size_give_the_same_crop(bird, scale):
    image, mask = bird
    larger = np.kron(mask, np.ones((scale, scale), bool))  # the same outline at a higher resolution
    for crop in (masked, context):
        assert np.array_equal(crop(image, coded(larger), 0.1, FILL), crop(image, coded(mask), 0.1, FILL))
    enlarged = np.kron(image, np.ones((scale, scale, 1), np.uint8))
    found = masked(enlarged, coded(mask), 0.0, FILL)
    shown = (found != FILL).any(axis=2).sum()
    assert 0.99 * scale**2 * mask.sum() < shown <= scale**2 * mask.sum()


def test_a_window_inside_the_picture_is_not_copied(bird):
    image, mask = bird
    assert np.shares_memory(context(image, coded(mask), 0.0, FILL), image)
