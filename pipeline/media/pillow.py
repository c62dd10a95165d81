"""Pillow, made safe for foreign files: limits set, one way from all its modes to RGB, its many errors as ours.

How each mode becomes 8-bit RGB:

    1, L, P, RGB, YCbCr, HSV     as Pillow converts them; no colour management, an ICC profile is not applied
    any with transparency        laid over white, the page on which such pictures are mostly shown
    16 bits a channel            the upper 8 bits
    I, F (32-bit grey)           no white is defined: its least and greatest finite values become 0 and 255
    CMYK, YCCK                   Pillow's formula without a profile: R = 255 - min(255, C + K)
    LAB and all others           refused as UNSUPPORTED
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import AvifImagePlugin, ImageFile
from PIL import Image as Pil

from pipeline.columns import Image
from pipeline.errors import MediaError, Reason
from pipeline.media.ending import is_cut
from pipeline.media.sniff import Kind

AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # decode tasks run beside each other
_ORIENTATION = 0x0112
_SUBFILE_TYPE, _SUB_IFDS, _DNG_VERSION = 254, 330, 50706
_ALREADY = ("L", "RGB", "1", "P", "YCbCr", "HSV", "CMYK", "RGBX")


@contextmanager
def guarded(data: bytes, kind: Kind, max_pixels: int) -> Iterator[None]:
    """Pillow's limits set and its errors translated, for the block.

    Raises:
        MediaError: TOO_LARGE, TRUNCATED or CORRUPT for whatever a decoder raises inside.
    """
    before = Pil.MAX_IMAGE_PIXELS
    Pil.MAX_IMAGE_PIXELS = max_pixels
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except MediaError:
        raise
    except Pil.DecompressionBombError as exc:
        count = int((re.findall(r"(\d+) pixels", str(exc)) or ["0"])[0])
        raise MediaError(
            Reason.TOO_LARGE, f"its header says {count:,} pixels, more than the limit of {max_pixels:,}"
        ) from exc
    except MemoryError as exc:
        raise MediaError(Reason.TOO_LARGE, "it does not fit into memory") from exc
    except Exception as exc:
        cut = "truncated" in str(exc).lower() or is_cut(io.BytesIO(data), kind)
        raise MediaError(Reason.TRUNCATED if cut else Reason.CORRUPT, f"{kind.name}: {_plain(exc)}") from exc
    finally:
        Pil.MAX_IMAGE_PIXELS = before


def open_image(data: bytes, kind: Kind) -> ImageFile.ImageFile:
    """The file with its header read; inside `guarded` only."""
    return Pil.open(io.BytesIO(data), formats=[kind.name])


def orientation(image: ImageFile.ImageFile) -> int:
    """EXIF orientation 1 to 8, or XMP's where there is no EXIF; 1 when either is broken, since the picture is not."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
        return int(value) if value in range(1, 9) else 1
    except Exception:  # a camera's broken tags raise all kinds of errors
        return 1


def refuse_raw(image: Any) -> None:
    """Raise UNSUPPORTED for a camera's raw file, which is a TIFF whose first page is a thumbnail."""
    tags = getattr(image, "tag_v2", {})
    thumbnail = int(tags.get(_SUBFILE_TYPE, 0) or 0) & 1 and _SUB_IFDS in tags
    if _DNG_VERSION in tags or thumbnail:
        raise MediaError(Reason.UNSUPPORTED, "a camera raw file (DNG, NEF, ARW): export it as JPEG or TIFF")


def to_rgb(image: Pil.Image) -> Image:
    """The image (h w 3) as the module's table says; loads it.

    Raises:
        MediaError: UNSUPPORTED for a mode with no row in the table.
    """
    image.load()
    if image.mode.startswith("I") or image.mode == "F":
        return np.repeat(_grey(image)[:, :, None], 3, axis=2)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        page = Pil.new("RGB", image.size, "white")
        page.paste(layer, mask=layer.getchannel("A"))
        return np.asarray(page)
    if image.mode not in _ALREADY:
        raise MediaError(Reason.UNSUPPORTED, f"the colour mode {image.mode} is not decoded: convert the file to RGB")
    return np.asarray(image.convert("RGB"))


def _grey(image: Pil.Image) -> np.ndarray[Any, np.dtype[np.uint8]]:
    values = np.asarray(image)
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        return (values >> 8).astype(np.uint8)
    numbers = values.astype(np.float64)  # changed in place: a copy would take 8 bytes a pixel
    finite = np.isfinite(numbers)
    low, high = numbers.min(where=finite, initial=np.inf), numbers.max(where=finite, initial=-np.inf)
    numbers[~finite] = low = low if low <= high else 0.0
    numbers -= low
    numbers *= 255.0 / (high - low) if high > low else 0.0
    return np.rint(numbers, out=numbers).astype(np.uint8)


def _plain(exc: Exception) -> str:
    return str(exc).partition(" <_io")[0] or type(exc).__name__
