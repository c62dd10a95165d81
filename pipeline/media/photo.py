"""A photo's bytes become RGB at each size asked, each made by itself from the bytes, and never a half-grey picture.

JPEG is scaled while it is decoded (by DCT), which also makes the small sizes cheap; every other format is decoded once
in full and reduced by area.

JPEG decoders on one core, 1152 x 896 pixels at quality 90, images a second at full, 1/2, 1/4, 1/8 size (equal pixels):

    simplejpeg 1.9     431  536  587  651   reports missing data and corrupt data
    OpenCV 5.0         410  515  573  627   takes a file cut in half for whole, the rest grey
    Pillow 13 (draft)  338  470  554  615   reports missing data, not corrupt data
"""

from __future__ import annotations

import numpy as np
import simplejpeg
from PIL.ImageFile import ImageFile

from pipeline.columns import LARGEST_REDUCTION, Image
from pipeline.errors import MediaError, Reason
from pipeline.media import pillow
from pipeline.media.animation import play
from pipeline.media.frames import Frame, Opened
from pipeline.media.pixels import Wanted, upright
from pipeline.media.sniff import Kind

_ANIMATED = (
    "GIF",
    "PNG",
    "WEBP",
    "AVIF",
)  # several pages of a TIFF or an MPO are not frames of a film: the first one counts

# What libjpeg-turbo says of a picture of which a part is invented; its other warnings (bytes to spare, odd parameters
# of some phones) leave it whole.
_CUT = "premature end of jpeg"
_DAMAGED = ("premature end of data segment", "bad huffman code", "bad arithmetic code", "instead of rst")


def open_photo(data: bytes, kind: Kind, wanted: Wanted) -> Opened:
    """A photo, decoded, or an animation, to be decoded as its frames are read.

    Args:
        data: the whole file.
        kind: what `sniff` said of it.
        wanted: sizes and limit.

    Raises:
        MediaError: TOO_LARGE (by the header), TRUNCATED, CORRUPT or UNSUPPORTED.
    """
    with pillow.guarded(data, kind, wanted.max_pixels):
        image = pillow.open_image(data, kind)
        wanted.check(image.height, image.width)
        if kind.name in _ANIMATED and getattr(image, "is_animated", False):
            return play(data, kind, wanted)
        pillow.refuse_raw(image)
        if kind.name == "JPEG" and image.mode in ("L", "RGB"):
            frame = _jpeg_frame(data, kind, image, wanted)
        else:
            whole = pillow.to_rgb(image)
            frame = wanted.frame(0, whole.shape[:2], pillow.orientation(image), lambda: whole, opens=True)
    return Opened(media_type="photo", frames=iter([frame]))


def _jpeg_frame(data: bytes, kind: Kind, image: ImageFile, wanted: Wanted) -> Frame:
    turn, height, width = pillow.orientation(image), image.height, image.width
    if not wanted.pixels:  # it must still turn out whether the file is whole
        _jpeg(data, kind, height, width, LARGEST_REDUCTION)
    images = wanted.make(height, width, lambda factor: upright(_jpeg(data, kind, height, width, factor), turn))
    unmade = wanted.unmade(height, width)
    height, width = wanted.shown(height, width, turn)
    return Frame(index=0, height=height, width=width, images=images, unmade=unmade, opens=True)


def _jpeg(data: bytes, kind: Kind, height: int, width: int, factor: int) -> Image:
    """The picture at 1/factor of its size, as stored (h w 3)."""
    try:
        return simplejpeg.decode_jpeg(data, min_height=-(-height // factor), min_width=-(-width // factor))
    except ValueError as exc:
        said = str(exc).lower()
        if _CUT in said:
            raise MediaError(Reason.TRUNCATED, f"JPEG: {exc}") from exc
        if any(text in said for text in _DAMAGED):
            raise MediaError(Reason.CORRUPT, f"JPEG: {exc}") from exc
    image = pillow.open_image(data, kind)  # rarer kinds of JPEG, and harmless warnings; the same library underneath
    image.draft("RGB", (max(1, width // factor), max(1, height // factor)))
    return np.asarray(image.convert("RGB"))
