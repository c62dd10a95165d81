"""Headers of JPEG photos read without Pillow say what Pillow reads, or nothing."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image as Pil
from PIL import ImageCms, JpegImagePlugin

from framekiln.media.images.jpeg import plain_size

PHOTO = Pil.fromarray(np.random.default_rng(0).integers(0, 255, (61, 97, 3)).astype(np.uint8))
TURNED = Pil.Exif()
TURNED[0x0112] = 6
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
ALIKE = {"progressive": True}, {"comment": b"a"}, {"subsampling": 0}, {"keep_rgb": True}, {"restart_marker_blocks": 2}
OTHERS = {"exif": TURNED}, {"icc_profile": SRGB}, {"xmp": b"<x:xmpmeta/>"}


def write(image: Pil.Image = PHOTO, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", **options)
    return stream.getvalue()


@pytest.mark.parametrize("options", ALIKE)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_plain_header_is_read(mode, options):
    assert plain_size(write(PHOTO.convert(mode), **options)) == (61, 97)


@pytest.mark.parametrize("options", OTHERS)
def test_a_header_with_orientation_or_colours_is_left_to_pillow(options):
    assert plain_size(write(**options)) is None
    assert plain_size(write(PHOTO.convert("CMYK"))) is None


def test_every_header_that_is_cut_or_changed_says_what_pillow_reads_or_nothing():
    data, read = write(), 0
    end = data.index(b"\xff\xda")
    for at in range(2, end):
        assert plain_size(data[:at]) is None
        changed = data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
        if (size := plain_size(changed)) is not None:
            read += 1
            try:
                image = JpegImagePlugin.JpegImageFile(io.BytesIO(changed))
            except Exception:  # of a damaged table, which the decoder finds too
                continue
            assert (image.height, image.width) == size and image.mode in ("L", "RGB")
    assert read
