"""Image files of painted frames: without loss, readable by others, for any size."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from framekiln_stages.inpaint.stage import png
from tests.support.media.photos import photo
from tests.support.stages.inpaint_factory import noise, opened


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (301, 1), (37, 53)])
def test_other_programs_read_the_same_pixels(size):
    image = noise(*size)
    data = png(image)
    assert (opened(data) == image).all()
    with Image.open(io.BytesIO(data)) as read:
        assert read.format == "PNG"
        assert (np.asarray(read.convert("RGB")) == image).all()


def test_views_and_photos_are_written_as_they_are():
    image = photo("china.jpg")[5:300:2, ::-1]
    assert (opened(png(image)) == image).all()


def test_a_png_is_about_as_small_as_libpngs_fastest():
    image = photo("china.jpg")
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    theirs = cv2.imencode(".png", bgr, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1]
    assert len(png(image)) < 1.15 * len(theirs)
