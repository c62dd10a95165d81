"""Coverings: eyes or a mouth without contrast, on the host and on a device."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from framekiln_stages.faces.alignment import luma_on_device
from framekiln_stages.faces.coverings import contrast, contrast_on_device
from tests.support.media.photos import photo


@pytest.fixture
def face():
    return np.ascontiguousarray(cv2.resize(photo("grace_hopper.jpg")[:300, 100:400], (112, 112)))


def test_a_covered_mouth_or_eye_has_no_contrast(face):
    for center, size, covered in (((56, 96), (34, 26), True), ((73, 52), (20, 14), True), ((56, 12), (40, 12), False)):
        other = cv2.ellipse(face.copy(), (center, (2 * size[0], 2 * size[1]), 0), (20, 30, 40), -1)
        assert (contrast(other) < 0.3) == covered, center
    assert contrast(face) > 0.3 and contrast(np.zeros((112, 112, 3), np.uint8)) == 0


def test_a_device_measures_the_same(face):
    crops = np.stack([face, face[::-1], face // 3])
    values = contrast_on_device(luma_on_device(torch.from_numpy(crops.copy()))).numpy()
    assert values == pytest.approx([contrast(np.ascontiguousarray(crop)) for crop in crops], abs=1e-3)
