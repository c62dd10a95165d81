"""Pillow for untrusted files: limits, one conversion from all modes to RGB, and errors as `MediaError`.

Conversion of each mode to 8-bit RGB:

    1, L, P, RGB, YCbCr, HSV     as Pillow converts them, then to sRGB (`colours`)
    any with transparency        laid over white, the usual background of such images
    9 to 16 bits a channel       the upper 8 bits
    I, F (32-bit grey)           no white is defined: the least and greatest finite values become 0 and 255
    CMYK, YCCK                   by its profile; Pillow's formula without one: R = 255 - min(255, C + K)
    LAB and all others           rejected as UNSUPPORTED
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
from numpy.typing import NDArray
from PIL import AvifImagePlugin, ImageFile, TiffImagePlugin, UnidentifiedImageError
from PIL import Image as Pil

from framekiln.contract.columns import Image
from framekiln.contract.errors import MediaError, Reason
from framekiln.media.config import DecodeConfig
from framekiln.media.damaged import is_truncated
from framekiln.media.file_types import HEAD_BYTES, Kind, detect_kind
from framekiln.media.files import MediaFile, read_bytes
from framekiln.media.images.colours import Conversion
from framekiln.media.images.tiff import BITS, read_tags, right_grey, unsupported

AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # decode tasks run side by side
pillow_heif.register_heif_opener(decode_threads=1, thumbnails=False, depth_images=False, aux_images=False)
_ALPHA, _ORIENTATION = (1, 2), 0x0112
for _order in (TiffImagePlugin.II, TiffImagePlugin.MM):  # CMYK with alpha, as of Photoshop; the alpha is not applied
    for _kind in _ALPHA:
        TiffImagePlugin.OPEN_INFO[(_order, 5, (1,), 1, (8,) * 5, (_kind,))] = ("CMYK", "CMYKX")
_NO_VARIANT = re.compile("Unsupported BMP ")  # start of Pillow's messages about variants that it does not read
_PIXELS_ARE_MISSING = ("truncated", "not enough image data")  # in Pillow's messages
_CONVERTIBLE = ("L", "RGB", "1", "P", "YCbCr", "HSV", "CMYK", "RGBX")


@contextmanager
def decode_errors(data: bytes, kind: Kind, max_pixels: int) -> Iterator[None]:
    """Set Pillow's limit and raise `MediaError` for its errors inside the block.

    Raises MediaError: TOO_LARGE, UNSUPPORTED, TRUNCATED or CORRUPT for any error of a decoder.
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
        message = f"the header states {count:,} pixels, the limit is {max_pixels:,}"
        raise MediaError(Reason.TOO_LARGE, message) from exc
    except MemoryError as exc:
        raise MediaError(Reason.TOO_LARGE, "it does not fit into memory") from exc
    except Exception as exc:
        if _NO_VARIANT.match(str(exc)):
            message = f"a variant that is not read ({_shorten_error(exc)}); convert the file to PNG"
            raise MediaError(Reason.UNSUPPORTED, message) from exc
        if isinstance(exc, UnidentifiedImageError) and kind.name == "TIFF" and (tags := read_tags(data)):
            raise unsupported(tags) from exc
        said = any(words in str(exc).lower() for words in _PIXELS_ARE_MISSING)
        truncated = said or is_truncated(io.BytesIO(data), kind)
        reason = Reason.TRUNCATED if truncated else Reason.CORRUPT
        raise MediaError(reason, f"{kind.name}: {_shorten_error(exc)}") from exc
    finally:
        Pil.MAX_IMAGE_PIXELS = before


@contextmanager
def pixels_allowed(count: int) -> Iterator[None]:
    """Let Pillow open images of that many pixels inside the block, which the caller has checked."""
    before, Pil.MAX_IMAGE_PIXELS = Pil.MAX_IMAGE_PIXELS, count
    try:
        yield
    finally:
        Pil.MAX_IMAGE_PIXELS = before


@contextmanager
def incomplete_images() -> Iterator[None]:
    """Let Pillow return what a truncated image has, inside the block; it fills the rest."""
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False


def open_image(data: bytes, kind: Kind) -> ImageFile.ImageFile:
    """Return the file with its header read; only inside `decode_errors`."""
    return Pil.open(io.BytesIO(data), formats=[kind.name])


def orientation(image: ImageFile.ImageFile) -> int:
    """Return the EXIF orientation 1 to 8, or XMP's without EXIF; 1 if either is damaged, since the image is not."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
        return int(value) if value in range(1, 9) else 1
    except Exception:  # damaged tags of cameras raise all kinds of errors
        return 1


def to_rgb(image: Pil.Image, conversion: Conversion | None = None) -> Image:
    """Load an image and return it as RGB (h w 3) by the module's table, its colours converted.

    Raises MediaError: UNSUPPORTED for a mode that is not in the table.
    """
    image.load()
    to_srgb = conversion and conversion.of_rgb
    if image.mode.startswith("I") or image.mode == "F":
        grey = np.repeat(_read_grey(image)[:, :, None], 3, axis=2)
        return to_srgb(grey) if to_srgb else grey
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        colours = Pil.fromarray(to_srgb(np.asarray(layer.convert("RGB")))) if to_srgb else layer
        page = Pil.new("RGB", image.size, "white")
        page.paste(colours, mask=layer.getchannel("A"))
        return np.asarray(page)
    if image.mode not in _CONVERTIBLE:
        raise MediaError(Reason.UNSUPPORTED, f"the colour mode {image.mode} is not supported; convert the file to RGB")
    if image.mode == "CMYK" and conversion and conversion.of_ink:
        return conversion.of_ink(image)
    rgb = np.asarray(image.convert("RGB"))
    return to_srgb(rgb) if to_srgb else rgb


def _read_grey(image: Pil.Image) -> np.ndarray[Any, np.dtype[np.uint8]]:
    values = np.asarray(image)
    if image.format == "PPM":  # Pillow scales its white to 65,535
        return (values >> 8).astype(np.uint8)
    tags = getattr(image, "tag_v2", {})
    bits, values = tags.get(BITS, (16,))[0], right_grey(values, tags)
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        return (values >> (bits - 8 if 8 < bits < 16 else 8)).astype(np.uint8)
    numbers = values.astype(np.float64)  # changed in place, as a copy takes 8 bytes a pixel
    finite = np.isfinite(numbers)
    low, high = numbers.min(where=finite, initial=np.inf), numbers.max(where=finite, initial=-np.inf)
    numbers[~finite] = low = low if low <= high else 0.0
    numbers -= low
    numbers *= 255.0 / (high - low) if high > low else 0.0
    return np.rint(numbers, out=numbers).astype(np.uint8)


def _shorten_error(exc: Exception) -> str:
    return str(exc).partition(" <_io")[0] or type(exc).__name__


def read_labels(path: Path) -> NDArray[np.uint8]:
    """Return the palette indices or grey levels of an image, h w; the palette's colours are not applied.

    Raises MediaError: the file cannot be read or decoded, is too large, or has several channels.
    """
    media = MediaFile(media_id=path.name, path=str(path.absolute()), size=path.stat().st_size, mtime_ns=0)
    data = read_bytes(media, 10 * DecodeConfig.max_pixels)
    kind = detect_kind(data[:HEAD_BYTES])
    with decode_errors(data, kind, DecodeConfig.max_pixels):
        image = open_image(data, kind)
        if image.mode not in ("1", "L", "P"):
            message = f"{path.name} has pixels of mode {image.mode}, and labels have one number a pixel"
            raise MediaError(Reason.UNSUPPORTED, message)
        return np.asarray(image).astype(np.uint8)
