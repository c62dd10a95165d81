"""Tags of a TIFF, where Pillow reads other pixels than were written, or none at all.

A variant that is not read is no damage: its error says so, and how to convert it.
"""

import io
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from framekiln.contract.errors import MediaError, Reason

WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, ORIENTATION = 256, 257, 258, 259, 262, 274
SUBFILE_TYPE, SUB_IFDS, SAMPLES, PLANES, DNG_VERSION, FORMAT = 254, 330, 277, 284, 50706, 339
_HEADER = 8  # bytes; BigTIFF has another
_WHITE_IS_ZERO, _APART, _REDUCED = 0, 2, 1
_FORMATS = {1: "unsigned", 2: "signed", 3: "floating-point"}


def read_tags(data: bytes) -> ImageFileDirectory_v2 | None:
    """Return the tags of a file's first page; None where they are damaged."""
    with suppress(Exception):  # damaged tags raise all kinds of errors
        tags, stream = ImageFileDirectory_v2(data[:_HEADER]), io.BytesIO(data)
        stream.seek(tags.next)
        tags.load(stream)
        return tags if tags[WIDTH] > 0 and tags[HEIGHT] > 0 else None
    return None


def unsupported(tags: Any) -> MediaError:
    """Return the error for a variant that is not read."""
    bits, samples = tags.get(BITS, (1,))[0], tags.get(SAMPLES, 1)
    kind = _FORMATS.get(tags.get(FORMAT, (1,))[0], "other")
    apart = ", each in a plane of its own" if tags.get(PLANES) == _APART else ""
    what = f"a TIFF with {samples} {'channel' if samples == 1 else 'channels'} of {bits} {kind} bits{apart}"
    return MediaError(Reason.UNSUPPORTED, f"{what}, which is not read; convert it to PNG")


def open_page(image: Any) -> None:
    """Go to the first page that is no thumbnail of another one.

    Raises MediaError: UNSUPPORTED for a camera's raw file, and for wide channels in planes, which Pillow mixes up.
    """
    tags = image.tag_v2
    thumbnail = int(tags.get(SUBFILE_TYPE, 0) or 0) & _REDUCED
    if DNG_VERSION in tags or (thumbnail and SUB_IFDS in tags):
        raise MediaError(Reason.UNSUPPORTED, "a camera raw file (DNG, NEF, ARW): export it as JPEG or TIFF")
    pages = range(image.n_frames) if thumbnail else ()
    for number in pages:
        image.seek(number)
        if not int(image.tag_v2.get(SUBFILE_TYPE, 0) or 0) & _REDUCED:
            break
    else:
        image.seek(0)
    tags = image.tag_v2
    if tags.get(PLANES) == _APART and tags.get(SAMPLES, 1) > 1 and max(tags.get(BITS, (1,))) > 8:
        raise unsupported(tags)


def right_grey(values: NDArray[Any], tags: Any) -> NDArray[Any]:
    """Return wide grey values, h w, with black as the least: Pillow takes unsigned numbers of 32 bits for signed ones.

    Where white is 0, as on scans and in medicine, values of more than 8 bits come as they are stored.
    """
    bits = tags.get(BITS, (16,))[0]
    if bits == 32 and tags.get(FORMAT, (1,))[0] == 1 and values.dtype == np.int32:
        values = values.view(np.uint32)
    if tags.get(PHOTOMETRIC) != _WHITE_IS_ZERO or bits <= 8:
        return values
    if values.dtype.kind == "u" and bits <= 16:
        return ((1 << bits) - 1 - values.astype(np.int64)).astype(values.dtype)
    return -values.astype(np.float64)
