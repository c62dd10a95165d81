"""Photos and animations to RGB at each requested size, each from the bytes alone.

For a truncated photo Pillow returns the decodable part: a row, and a row in the errors table. Without a visible part,
or with damage inside the file, there is only the latter.

JPEG is scaled while it is decoded (`jpeg`), which also makes the small sizes cheap. Every other format is decoded once
at full size and reduced by area.

Animated GIF, WebP, PNG and AVIF are read as short videos: their frames have numbers and times. Pillow composes them as
a viewer does, one after the other, so that memory does not grow with their number.
"""

import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate

from PIL import Image as Pil
from PIL import TiffImagePlugin
from PIL.ImageFile import ImageFile

from framekiln.contract.columns import Image
from framekiln.contract.errors import MediaError, Reason
from framekiln.media.damaged import boxes
from framekiln.media.file_types import Kind
from framekiln.media.frames import Frame, FrameSource, FrameSpec, LostFrames, max_frames, reduce_by, too_many_frames
from framekiln.media.images import jpeg, pillow, tiff
from framekiln.media.images.colours import crop_avif, find_conversion
from framekiln.media.images.wide_tiff import WideTiff
from framekiln.media.tags import CREDENTIALS_WITHIN, Tags, find_credentials, read_photo_tags

_ANIMATED = ("GIF", "PNG", "WEBP", "AVIF")  # pages of a TIFF or MPO are no frames: only the first is used
_PIXELS_PER_BYTE = 1000  # most pixels a byte of a truncated file: JPEG needs a byte for 30 to 50 pixels of a flat image
_MOST_PIXEL = 48  # bytes of one pixel: six channels of 64 bits
_LEAST_PART = 0.01  # share of the pixels; a decoder may invent a block or two at the end of the data
_MAX_HEADER = 1 << 22  # bytes searched in the box `meta`: a grid of 10,000 tiles takes 1 MB
_STATED_SIZE = re.compile(rb"ispe\0{4}(.{4})(.{4})", re.S)  # ISO/IEC 23008-12, 6.5.3: version and flags, width, height


def open_photo(data: bytes, kind: Kind, spec: FrameSpec) -> FrameSource:
    """Decode the photo in a file's bytes, or open an animation for decoding on demand.

    Raises MediaError: TOO_LARGE (by the header), TRUNCATED, CORRUPT or UNSUPPORTED.
    """
    if kind.name in ("AVIF", "HEIF"):
        _check_stated_size(data, spec)
    try:
        return replace(_decode(data, kind, spec), tags=_read_tags(data, kind, spec))
    except MediaError as exc:
        if exc.reason is Reason.CORRUPT and kind.name == "JPEG" and jpeg.is_rare(data):
            message = "a JPEG of more than 8 bits, JPEG-LS or a hierarchical one; convert it to PNG"
            raise MediaError(Reason.UNSUPPORTED, message) from exc
        part = _read_part(data, kind, spec) if exc.reason is Reason.TRUNCATED else None
        if part is None:
            raise
        loss = MediaError(Reason.TRUNCATED, f"{exc}; the rest of the image is filled in")
        part = replace(part, damaged=exc.reason.value)
        frames: Iterator[Frame | LostFrames] = iter([part, LostFrames(index=0, error=loss)])
        return FrameSource(media_type="photo", frames=frames, tags=_read_tags(data, kind, spec))


def _read_tags(data: bytes, kind: Kind, spec: FrameSpec) -> Tags | None:
    if not spec.tags:
        return None
    if kind.name == "JPEG" and jpeg.plain_size(data) and data.find(b"Photoshop 3.0", 0, CREDENTIALS_WITHIN) < 0:
        return find_credentials(data)  # its header has no EXIF, XMP or IPTC
    with suppress(MediaError), pillow.decode_errors(data, kind, spec.config.max_pixels), pillow.incomplete_images():
        return read_photo_tags(data, pillow.open_image(data, kind))
    return find_credentials(data)  # Pillow does not know the file


def _decode(data: bytes, kind: Kind, spec: FrameSpec) -> FrameSource:
    with pillow.decode_errors(data, kind, spec.config.max_pixels):
        data, own = _find_own_reader(data, kind, spec)
        if own is not None:
            return _make_source(_make_frame(*_show(data, kind, own.image(data)), own.orientation, spec))
        if kind.name == "JPEG" and (size := jpeg.plain_size(data)):
            return _make_source(jpeg.decode_frame(data, kind, size, spec))
        image = pillow.open_image(data, kind)
        spec.check_size(image.height, image.width)
        if kind.name in _ANIMATED and getattr(image, "is_animated", False):
            durations = list(_read_durations(data, kind, spec))
            fps = 1000.0 * len(durations) / sum(durations) if durations else None
            return FrameSource(media_type="animation", frames=_read_frames(data, kind, spec, durations), fps=fps)
        if kind.name == "JPEG" and image.mode in ("L", "RGB"):
            size, conversion = (image.height, image.width), find_conversion(data, kind, image)
            return _make_source(jpeg.decode_frame(data, kind, size, spec, pillow.orientation(image), conversion))
        return _make_source(_make_frame(*_show(data, kind, image), pillow.orientation(image), spec))


def _check_stated_size(data: bytes, spec: FrameSpec) -> None:
    """Check each image size in the header of an AVIF or HEIC photo, before a decoder sees the file.

    libavif rejects more than 268 million pixels as if the file were damaged. Only here does a grid of tiles state its
    size. Raises MediaError: TOO_LARGE.
    """
    for kind, start, stop in boxes(io.BytesIO(data), len(data)):
        if kind == b"meta":
            for match in _STATED_SIZE.finditer(data[start : min(stop, start + _MAX_HEADER)]):
                width, height = (int.from_bytes(side, "big") for side in match.groups())
                if width and height:
                    spec.check_size(height, width)


def _find_own_reader(data: bytes, kind: Kind, spec: FrameSpec) -> tuple[bytes, WideTiff | None]:
    """Return the header of a TIFF that Pillow does not read and this package does, else None, and the file.

    If a TIFF's first page is a thumbnail or a mask, the photo is put first.
    Raises MediaError: UNSUPPORTED, TOO_LARGE or CORRUPT, by the header.
    """
    data, page = tiff.find_photo(data) if kind.name == "TIFF" else (data, None)
    if page is None:
        return data, None
    spec.check_size(page.height, page.width)
    TiffImagePlugin.READ_LIBTIFF = page.first(tiff.PHOTOMETRIC, 1) == tiff.YCBCR  # Pillow's own: no subsampling
    return data, None if page.is_of_pillow else WideTiff.of(page)


def _read_part(data: bytes, kind: Kind, spec: FrameSpec) -> Frame | None:
    """Return the visible part of a truncated photo; None if there is none."""
    with suppress(MediaError), pillow.decode_errors(data, kind, spec.config.max_pixels), pillow.incomplete_images():
        data, own = _find_own_reader(data, kind, spec)
        header = own or pillow.open_image(data, kind)
        spec.check_size(header.height, header.width)
        missing = own.end - len(data) if own else 0
        if max(header.height * header.width, missing // _MOST_PIXEL) > _PIXELS_PER_BYTE * len(data):
            return None
        image = own.image(data.ljust(own.end, b"\0")) if own else _open_incomplete(data, kind)
        turn = own.orientation if own else pillow.orientation(image)
        full, color_space = _show(data, kind, image)
        step = max(1, min(full.shape[:2]) // 256)  # a full copy would double the memory
        differing = (full[::step, ::step] != full[-1, -1]).any(axis=2)  # decoders fill the rest with one colour
        if differing.mean() > _LEAST_PART:
            return _make_frame(full, color_space, turn, spec)
    return None


def _open_incomplete(data: bytes, kind: Kind) -> ImageFile:
    """Return a truncated photo in a form that Pillow can read."""
    image = pillow.open_image(data, kind)
    if kind.name == "PPM":  # Pillow only fills files with 255 levels
        rest = bytes(2 * image.height * image.width * len(image.getbands()))
        image = pillow.open_image(data + rest, kind)
    return image


def _make_source(frame: Frame) -> FrameSource:
    return FrameSource(media_type="photo", frames=iter([frame]))


def _show(data: bytes, kind: Kind, image: Pil.Image) -> tuple[Image, str | None]:
    """Return an opened photo in sRGB (h w 3), and the name of its colours before the conversion."""
    if kind.name == "TGA" and image.mode == "RGBA" and not data[17] & 0x0F:  # no bits of its fourth byte are alpha
        image = image.convert("RGB")
    if kind.name == "GIF":
        pillow.load_page(image)
    image = crop_avif(data, image) if kind.name == "AVIF" else image
    conversion = find_conversion(data, kind, image)
    return pillow.to_rgb(image, conversion), conversion.name if conversion else None


def _make_frame(full: Image, color_space: str | None, orientation: int, spec: FrameSpec) -> Frame:
    return spec.frame(0, full.shape[:2], orientation, partial(reduce_by, full), is_key=True, color_space=color_space)


_CANVAS_DIVISOR = 4  # Pillow holds several copies of a canvas: 25 to 35 bytes a pixel; of a photo 6 to 20
_DEFAULT_MS, _TOO_FAST_MS = 100.0, 10.0  # browsers show frames of up to 10 ms, "as fast as possible", for 0.1 s


def _read_durations(data: bytes, kind: Kind, spec: FrameSpec) -> Iterator[float]:
    """Yield the milliseconds of each frame, up to the first undecodable one."""
    try:
        for image in _read_pages(data, kind, spec):
            stated = float(image.info.get("duration", 0))
            yield stated if stated > _TOO_FAST_MS else _DEFAULT_MS
    except MediaError:
        return


def _read_frames(data: bytes, kind: Kind, spec: FrameSpec, durations: list[float]) -> Iterator[Frame]:
    starts = list(accumulate(durations, initial=0.0))
    orientation, conversion = 1, None
    for index, image in enumerate(_read_pages(data, kind, spec)):
        if not spec.keeps(index):
            continue
        with pillow.decode_errors(data, kind, spec.config.max_pixels):
            if index == 0:
                orientation, conversion = pillow.orientation(image), find_conversion(data, kind, image)
            full = pillow.to_rgb(image, conversion)
        color_space = conversion and conversion.name
        make, time_s = partial(reduce_by, full), starts[index] / 1000.0
        yield spec.frame(
            index, full.shape[:2], orientation, make, time_s=time_s, is_key=index == 0, color_space=color_space
        )


def _read_pages(data: bytes, kind: Kind, spec: FrameSpec) -> Iterator[ImageFile]:
    """Yield the file at each of its frames; the still image of an APNG for old viewers is skipped."""
    with pillow.decode_errors(data, kind, spec.config.max_pixels):
        image = pillow.open_image(data, kind)
        first = 1 if image.info.get("default_image") else 0
        count = int(getattr(image, "n_frames", 1))
        most = spec.config.max_pixels // _CANVAS_DIVISOR
        if image.height * image.width > most:
            stated = f"the header states {image.width} x {image.height} pixels"
            message = f"{stated}, the limit is {most:,} for an animation, 1/{_CANVAS_DIVISOR} of that for a photo"
            raise MediaError(Reason.TOO_LARGE, message)
        limit = max_frames("animation", image.height, image.width, len(data), spec.config.max_length)
    for number in range(first, count):
        if number - first >= limit:
            raise too_many_frames(limit, spec.config.max_length)
        with pillow.decode_errors(data, kind, spec.config.max_pixels):
            image.seek(number)
            spec.check_size(image.height, image.width)
            pillow.load_page(image)
        yield image
    if count <= first:
        raise MediaError(Reason.EMPTY, "the animation has no frame")
