"""JPEG photos, scaled while they are decoded (by DCT).

Decoders on one core, 1152 x 896 pixels at quality 90, images a second at full, 1/2, 1/4, 1/8 size (equal pixels):

    simplejpeg 1.9     431  536  587  651   reports missing data and corrupt data
    OpenCV 5.0         410  515  573  627   accepts half a file, the rest grey
    Pillow 13 (draft)  338  470  554  615   reports missing data, not corrupt data

Pillow takes longer to read a header than simplejpeg to decode 64 x 64 pixels, so most headers are read here.
"""

from collections.abc import Iterator

import numpy as np
import simplejpeg

from framekiln.contract.columns import LARGEST_REDUCTION, Image
from framekiln.contract.errors import MediaError, Reason
from framekiln.media.file_types import Kind
from framekiln.media.frames import Frame, FrameSpec
from framekiln.media.images import pillow
from framekiln.media.images.colours import Conversion

# Messages of libjpeg-turbo for images with invented parts. Its other warnings (extra bytes, unusual parameters of some
# phones) concern complete images.
_TRUNCATED = "premature end of jpeg"
_DAMAGED = ("premature end of data segment", "bad huffman code", "bad arithmetic code", "instead of rst")

# Markers: ITU-T T.81, table B.1. Frames are baseline, extended or progressive, by Huffman codes.
_FRAMES, _SCAN, _DEPTH = (0xC0, 0xC1, 0xC2), 0xDA, 8
_UNREAD = (0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF, 0xF7)  # frames that no decoder here reads; the last is JPEG-LS
# Tables, comments, JFIF, and what editors keep for themselves. Not EXIF and XMP (0xE1: orientation), ICC profiles and
# further images (0xE2).
_SKIPPED = frozenset({0xC4, 0xDB, 0xDD, 0xE0, *range(0xE3, 0xF0), 0xFE})


def plain_size(data: bytes) -> tuple[int, int] | None:
    """Return height and width of an upright grey or colour photo of 8 bits in sRGB, by its header.

    None if the header says more, or is damaged: then Pillow reads it.
    """
    size = None
    for marker, at in _read_markers(data):
        if marker == _SCAN:
            return size
        if marker in _FRAMES and data[at + 4] == _DEPTH and data[at + 9] in (1, 3) and size is None:
            size = int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
        elif marker not in _SKIPPED:
            return None
    return None


def is_rare(data: bytes) -> bool:
    """Return whether a header states more than 8 bits, or a kind of frame that is not read: no damage explains it."""
    frames = (*_FRAMES, 0xC3, 0xC9, 0xCA)
    return any(marker in _UNREAD or (marker in frames and data[at + 4] != _DEPTH) for marker, at in _read_markers(data))


def _read_markers(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the markers of a header and their places, up to the first scan."""
    at, marker = 2, 0
    while marker != _SCAN and data[at : at + 1] == b"\xff" and len(data) > at + 9:
        marker = data[at + 1]
        yield marker, at
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def decode_frame(
    data: bytes,
    kind: Kind,
    size: tuple[int, int],
    spec: FrameSpec,
    orientation: int = 1,
    conversion: Conversion | None = None,
) -> Frame:
    """Decode a photo with this stored height and width, and convert its colours at the small size.

    Raises MediaError: TOO_LARGE, TRUNCATED or CORRUPT.
    """
    spec.check_size(*size)
    if not spec.pixels:  # the file must still be checked for damage
        _decode(data, kind, size, LARGEST_REDUCTION)
    to_srgb = conversion and conversion.of_rgb

    def make(factor: int) -> Image:
        image = _decode(data, kind, size, factor)
        return to_srgb(image) if to_srgb else image

    return spec.frame(0, size, orientation, make, is_key=True, color_space=conversion and conversion.name)


def _decode(data: bytes, kind: Kind, size: tuple[int, int], factor: int) -> Image:
    """Return the image at 1/factor of its size, as stored (h w 3)."""
    height, width = size
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
