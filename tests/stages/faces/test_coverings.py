"""Coverings: eyes or a mouth without contrast, on the host and on a device."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from framekiln_stages.faces.alignment import contrast, contrast_on_device, luma_on_device
from tests.support.media.photos import photo


@pytest.fixture
def face():
    return np.ascontiguousarray(cv2.resize(photo("grace_hopper.jpg")[:300, 100:400], (112, 112)))


def test_a_covered_mouth_or_eye_has_no_contrast(face):
    for center, size, covered in (((56, 96), (34, 26), True), ((73, 52), (20, 14), True), ((56, 12), (40, 12), False)):
        other = cv2.ellipse(face.copy(), (center, (2 * size[0], 2 * size[1]), 0), (20, 30, 40), -1)
        assert (contrast(other) < 0.3) == covered, center
    assert contrast(face) > 0.3 and contrast(np.zeros((112, 112, 3), np.uint8)) == 0


@pytest.mark.parametrize("width", [4, 6])
def test_a_pattern_on_the_jaw_and_a_sky_in_the_glasses_are_coverings(face, width):
    stripes = np.where(np.arange(112)[:, None] % (2 * width) < width, 40, 200).repeat(112, 1)
    mask, lens = np.zeros((2, 112, 112), np.uint8)
    cv2.ellipse(mask, ((56, 90), (76, 52), 0), 255, -1)
    for x in (38, 73):
        cv2.ellipse(lens, ((x, 52), (32, 24), 0), 255, -1)
    sky = np.where(np.arange(112)[:, None] < 54, 230, 60).repeat(112, 1)
    for shape, drawn in ((mask, stripes), (mask, stripes.T), (lens, sky)):
        covered = np.where(shape[:, :, None] > 0, drawn[:, :, None], face).astype(np.uint8)
        assert contrast(covered) < 0.3
    assert contrast(np.where(mask[:, :, None] > 0, face // 2, face).astype(np.uint8)) > 0.3, "a shadow"


def test_a_device_measures_the_same(face):
    crops = np.stack([face, face[::-1], face // 3])
    values = contrast_on_device(luma_on_device(torch.from_numpy(crops.copy()))).numpy()
    assert values == pytest.approx([contrast(np.ascontiguousarray(crop)) for crop in crops], abs=1e-3)
