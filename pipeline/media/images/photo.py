"""Photos to RGB at each requested size, each from the bytes alone; incomplete images are errors, never grey.

JPEG is scaled while it is decoded (by DCT), which also makes the small sizes cheap. Every other format is decoded once
at full size and reduced by area.

JPEG decoders on one core, 1152 x 896 pixels at quality 90, images a second at full, 1/2, 1/4, 1/8 size (equal pixels):

    simplejpeg 1.9     431  536  587  651   reports missing data and corrupt data
    OpenCV 5.0         410  515  573  627   accepts half a file, the rest grey
    Pillow 13 (draft)  338  470  554  615   reports missing data, not corrupt data
"""

from __future__ import annotations

from functools import partial

import numpy as np
import simplejpeg
from PIL.ImageFile import ImageFile

from pipeline.contract.columns import LARGEST_REDUCTION, Image
from pipeline.contract.errors import MediaError, Reason
from pipeline.media.file_types import Kind
from pipeline.media.frames import Frame, FrameSource, FrameSpec
from pipeline.media.images import pillow
from pipeline.media.images.animation import open_animation
from pipeline.media.images.pyramid import reduce_by

_ANIMATED = ("GIF", "PNG", "WEBP", "AVIF")  # pages of a TIFF or MPO are no frames: only the first is used

# Messages of libjpeg-turbo for images with invented parts. Its other warnings (extra bytes, unusual parameters of some
# phones) concern complete images.
_TRUNCATED = "premature end of jpeg"
_DAMAGED = ("premature end of data segment", "bad huffman code", "bad arithmetic code", "instead of rst")


def open_photo(data: bytes, kind: Kind, spec: FrameSpec) -> FrameSource:
    """Decode a photo, or open an animation for decoding on demand.

    Args:
        data: the whole file.
        kind: of the file.
        spec: sizes and limits.

    Raises:
        MediaError: TOO_LARGE (by the header), TRUNCATED, CORRUPT or UNSUPPORTED.
    """
    with pillow.decode_errors(data, kind, spec.config.max_pixels):
        image = pillow.open_image(data, kind)
        spec.check_size(image.height, image.width)
        if kind.name in _ANIMATED and getattr(image, "is_animated", False):
            return open_animation(data, kind, spec)
        pillow.check_not_raw(image)
        if kind.name == "JPEG" and image.mode in ("L", "RGB"):
            frame = _jpeg_frame(data, kind, image, spec)
        else:
            full = pillow.to_rgb(image)
            frame = spec.frame(0, full.shape[:2], pillow.orientation(image), partial(reduce_by, full), is_key=True)
    return FrameSource(media_type="photo", frames=iter([frame]))


def _jpeg_frame(data: bytes, kind: Kind, image: ImageFile, spec: FrameSpec) -> Frame:
    size = (image.height, image.width)
    if not spec.pixels:  # the file must still be checked for damage
        _jpeg(data, kind, *size, LARGEST_REDUCTION)
    return spec.frame(0, size, pillow.orientation(image), partial(_jpeg, data, kind, *size), is_key=True)


def _jpeg(data: bytes, kind: Kind, height: int, width: int, factor: int) -> Image:
    """Return the image at 1/factor of its size, as stored (h w 3)."""
    try:
        return simplejpeg.decode_jpeg(data, min_height=-(-height // factor), min_width=-(-width // factor))
    except ValueError as exc:
        message = str(exc).lower()
        if _TRUNCATED in message:
            raise MediaError(Reason.TRUNCATED, f"JPEG: {exc}") from exc
        if any(text in message for text in _DAMAGED):
            raise MediaError(Reason.CORRUPT, f"JPEG: {exc}") from exc
    image = pillow.open_image(data, kind)  # rarer kinds of JPEG, and harmless warnings; uses the same library
    image.draft("RGB", (max(1, width // factor), max(1, height // factor)))
    return np.asarray(image.convert("RGB"))
