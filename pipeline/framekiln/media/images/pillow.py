"""Pillow for untrusted files: limits, one conversion from all modes to RGB, and errors as `MediaError`.

Conversion of each mode to 8-bit RGB:

    1, L, P, RGB, YCbCr, HSV     as Pillow converts them, then to sRGB (`colours`)
    any with transparency        laid over white, the usual background of such images
    9 to 16 bits a channel       the upper 8 bits; TIFF has more kinds of numbers (`wide_tiff`)
    CMYK, YCCK                   by its profile; Pillow's formula without one: R = 255 - min(255, C + K)
    LAB                          to sRGB by lcms (`colours`)
    all others                   rejected as UNSUPPORTED
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
from PIL import AvifImagePlugin, ImageFile, UnidentifiedImageError
from PIL import Image as Pil

from framekiln.contract.columns import Image
from framekiln.contract.errors import MediaError, Reason
from framekiln.media.config import DecodeConfig
from framekiln.media.damaged import boxes, is_truncated
from framekiln.media.file_types import HEAD_BYTES, Kind, detect_kind
from framekiln.media.files import MediaFile, read_bytes
from framekiln.media.images.colours import Conversion
from framekiln.media.images.tiff import COMPRESSION, OLD_JPEG, find_photo

AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # decode tasks run side by side
pillow_heif.register_heif_opener(decode_threads=1, thumbnails=False, depth_images=False, aux_images=False)
_ORIENTATION = 0x0112
_TAG_BOXES = {b"JpgTiffExif->JP2": "exif", bytes.fromhex("be7acfcb97a942e89c71999491e3afac"): "xmp"}  # UUIDs in JP2
_NO_VARIANT = re.compile("Unsupported BMP ")  # start of Pillow's messages about unsupported variants
_PIXELS_ARE_MISSING = ("truncated", "not enough image data")  # in Pillow's messages
_DEPTHS = {"L;2": 85, "L;4": 17}  # from a PNG's transparent level to 8 bits, by Pillow's mode of the file
_BACKGROUND, _PREVIOUS, _OVER = 2, 3, 1  # disposals of a GIF; an APNG's blend
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
            message = f"an unsupported variant ({_shorten_error(exc)}); convert the file to PNG"
            raise MediaError(Reason.UNSUPPORTED, message) from exc
        _, page = find_photo(data) if kind.name == "TIFF" else (data, None)
        if page and (isinstance(exc, UnidentifiedImageError) or page.first(COMPRESSION, 1) == OLD_JPEG):
            raise page.unsupported from exc
        said = any(words in str(exc).lower() for words in _PIXELS_ARE_MISSING)
        truncated = said or is_truncated(io.BytesIO(data), kind)
        reason = Reason.TRUNCATED if truncated else Reason.CORRUPT
        raise MediaError(reason, f"{kind.name}: {_shorten_error(exc)}") from exc
    finally:
        Pil.MAX_IMAGE_PIXELS = before


@contextmanager
def pixels_allowed(count: int) -> Iterator[None]:
    """Let Pillow open images of this many pixels in the block; the caller has checked the number."""
    before, Pil.MAX_IMAGE_PIXELS = Pil.MAX_IMAGE_PIXELS, count
    try:
        yield
    finally:
        Pil.MAX_IMAGE_PIXELS = before


@contextmanager
def incomplete_images() -> Iterator[None]:
    """Let Pillow return the available part of a truncated image in the block; it fills the rest."""
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False


def open_image(data: bytes, kind: Kind) -> ImageFile.ImageFile:
    """Return the file with its header read; only inside `decode_errors`."""
    image = Pil.open(io.BytesIO(data), formats=[kind.name])
    for box, start, stop in boxes(io.BytesIO(data), len(data)) if kind.name == "JPEG2000" else ():
        if box == b"uuid" and (name := _TAG_BOXES.get(data[start + 8 : start + 24])):  # Pillow does not read them
            image.info.setdefault(name, data[start + 24 : stop])
    return image


def orientation(image: Pil.Image) -> int:
    """Return the EXIF orientation 1 to 8, or XMP's without EXIF; 1 if it is damaged, since the image is not."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
        return int(value) if value in range(1, 9) else 1
    except Exception:  # damaged tags of cameras raise all kinds of errors
        return 1


def load_page(image: Any) -> None:
    """Load a page of an animation, or a still GIF, as browsers compose it.

    Pillow fills the place around a GIF's first part with the first colour of its palette, and disposes a part by a
    colour of another palette. In an APNG half-transparent pixels have too little weight over fully transparent ones.
    """
    under = image._prev_im if image.format == "PNG" and image.mode == "RGBA" and image.blend_op == _OVER else None
    image.blend_op = 0 if under else getattr(image, "blend_op", 0)
    image.load()
    if under:
        canvas = image._new(under)
        canvas.alpha_composite(image.crop(image.dispose_extent), image.dispose_extent[:2])
        image.im = canvas.im
    if image.format != "GIF":
        return
    extent, is_first = image.dispose_extent, image.tell() == 0
    is_partial = extent != (0, 0, *image.size) or image.disposal_method == _PREVIOUS
    if is_first and is_partial and "transparency" not in image.info:
        canvas = Pil.new("RGBA", image.size, (255, 255, 255, 0))
        canvas.paste(image.crop(extent).convert("RGBA"), extent[:2])
        image.im, image._mode = canvas.im, canvas.mode
    clears = image.disposal_method == _BACKGROUND or (is_first and image.disposal_method == _PREVIOUS)
    if clears and image.mode in ("RGB", "RGBA"):
        left, top, right, bottom = extent
        white = (255, 255, 255, 0)[: len(image.mode)]
        image.dispose = Pil.new(image.mode, (right - left, bottom - top), white).im


def _fit_transparency(image: Any) -> None:
    """Convert a PNG's transparent level to the 8 bits that Pillow reads."""
    key, mode = image.info.get("transparency"), str(image.tile[0][3]) if getattr(image, "tile", None) else ""
    if isinstance(key, int) and mode in _DEPTHS:
        image.info["transparency"] = min(255, key * _DEPTHS[mode])
    elif isinstance(key, tuple) and mode == "RGB;16B":
        image.info["transparency"] = tuple(level >> 8 for level in key)


def to_rgb(image: Pil.Image, conversion: Conversion | None = None) -> Image:
    """Load an image and return it as RGB (h w 3) by the module's table, with converted colours.

    Raises MediaError: UNSUPPORTED for a mode that is not in the table.
    """
    _fit_transparency(image)
    image.load()
    to_srgb = conversion and conversion.of_rgb
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):  # its white is 65,535
        levels = np.asarray(image)
        grey = np.repeat((levels >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
        grey = np.array(to_srgb(grey)) if to_srgb else grey
        grey[levels == image.info.get("transparency", -1)] = 255
        return grey
    image = image.convert("LA") if image.mode == "La" else image
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        colours = Pil.fromarray(to_srgb(np.asarray(layer.convert("RGB")))) if to_srgb else layer
        page = Pil.new("RGB", image.size, "white")
        page.paste(colours, mask=layer.getchannel("A"))
        return np.asarray(page)
    if image.mode in ("CMYK", "LAB") and conversion and conversion.of_ink:
        return conversion.of_ink(image)
    if image.mode not in _CONVERTIBLE:
        raise MediaError(Reason.UNSUPPORTED, f"the colour mode {image.mode} is not supported; convert the file to RGB")
    rgb = np.asarray(image.convert("RGB"))
    return to_srgb(rgb) if to_srgb else rgb


def _shorten_error(exc: Exception) -> str:
    return str(exc).partition(" <_io")[0] or type(exc).__name__


def read_labels(path: Path) -> NDArray[np.uint8]:
    """Return the palette indices or grey levels of an image, h w, without the palette's colours.

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
