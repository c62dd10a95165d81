"""Thumbnails of frames, decoded again from the media, and drawings of stages over them as SVG.

`Markup.format` escapes everything that is not a number. A stage's image is decoded, scaled to the thumbnail and encoded
again, so that no foreign bytes enter the page.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from framekiln.contract.columns import FrameKey, Image
from framekiln.contract.drawing import Drawing
from framekiln.export.pictures import check_unchanged
from framekiln.media.config import DecodeConfig
from framekiln.media.packets.decode import decode_frames
from framekiln.output.object_store import Store
from framekiln.output.unit_table import tabulated_files
from framekiln.reporting.kit.pages import image_uri
from framekiln.reporting.kit.texts import coordinate as _n
from framekiln.reporting.kit.texts import shorten

SIDE = 240  # px, short side
LONGEST = 420  # px, long side of panoramas
QUALITIES = (80, 60, 40, 20)  # qualities of JPEG; the first small enough one is used: about 15 kB each with the first
LARGEST = 30_000  # bytes: a page with a hundred of them can still be mailed
PIXELS = "frame_256"  # the nearest decoded size above SIDE
MIDDLE = (180, 240)  # height and width, px: a tile of a page shows them one to one


@dataclass(frozen=True, kw_only=True)
class Thumbnail:
    """A small image."""

    jpeg: bytes
    width: int
    height: int

    @property
    def uri(self) -> str:
        return image_uri(self.jpeg)


def thumbnails(
    store: Store, keys: Collection[FrameKey], config: DecodeConfig, *, middle: bool = False
) -> dict[FrameKey, Thumbnail]:
    """Decode frames again, by the rules of the run; they are near the starts of their files.

    With `middle` each is the middle of its frame at full size. It shows noise, blocks and fine detail.
    """
    pixels, make = ("frame", _cut_middle) if middle else (PIXELS, _shrink)
    indices: dict[str, set[int]] = defaultdict(set)
    for name, index in keys:
        indices[name].add(index)
    files, images = tabulated_files(store), dict[FrameKey, Thumbnail]()
    for name in sorted(indices.keys() & files.keys()):
        with suppress(Exception):  # of any class: the file was moved, changed, or cannot be decoded any more
            for frame in decode_frames(check_unchanged(files[name]), (pixels,), config, wanted=indices[name]):
                images[name, frame.index] = make(frame.images[pixels])
    return images


def image_store(images: Mapping[FrameKey, Thumbnail]) -> dict[str, Any]:
    """Return a page's values with each thumbnail once, under its `ids`."""
    return {"images": images, "ids": {key: f"p{number}" for number, key in enumerate(images)}}


def _shrink(image: Image) -> Thumbnail:
    height, width = image.shape[:2]
    scale = min(1.0, SIDE / min(height, width), LONGEST / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    return Thumbnail(jpeg=as_jpeg(cv2.cvtColor(small, cv2.COLOR_RGB2BGR)), width=size[0], height=size[1])


def _cut_middle(image: Image) -> Thumbnail:
    top, left = (max(0, (side - part) // 2) for side, part in zip(image.shape[:2], MIDDLE, strict=True))
    part = cv2.cvtColor(image[top : top + MIDDLE[0], left : left + MIDDLE[1]], cv2.COLOR_RGB2BGR)
    data = cv2.imencode(".jpg", part, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()  # less would add blocks
    return Thumbnail(jpeg=data, width=part.shape[1], height=part.shape[0])


def as_jpeg(image: NDArray[np.uint8]) -> bytes:
    """Encode an image (h w 3, BGR) as JPEG, at lower quality if it would exceed `LARGEST`."""
    data = b""
    for quality in QUALITIES:
        data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        if len(data) <= LARGEST:
            break
    return data


COLOURS = 6  # in the style sheet; further drawings reuse them
MOST_AREAS = 40  # areas of one drawing
MOST_RINGS = 60  # rings of one area: a mask of specks has hundreds
MOST_LABELS = 24
LETTERS = 28  # letters of a label
MOST_BYTES = 64_000_000  # bytes of an encoded image that is decoded
_DOT = 0.006  # radius of a point as a share of width plus height
_LARGEST = 100_000  # bytes of an overlay
_SMALLEST = 64  # px


def strokes(drawing: Drawing, width: int, height: int, colour: int) -> Markup:
    """Return a drawing's lines and points, with a dark edge that keeps them visible on any image.

    Non-finite values are left out. The thumbnail's size is in px; `colour`: an index into the style sheet.
    """
    lines = [(a * width, b * height, c * width, d * height) for a, b, c, d in drawing.lines]
    points, r = [(x * width, y * height) for x, y in drawing.points], _DOT * (width + height)
    path = "".join(f"M{_n(a)} {_n(b)}L{_n(c)} {_n(d)}" for a, b, c, d in lines if np.isfinite([a, b, c, d]).all())
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            path += f"M{_n(x - r)} {_n(y)}h{_n(2 * r)}M{_n(x)} {_n(y - r)}v{_n(2 * r)}"
    template = Markup('<g class="ink ink{}"><path class="edge" d="{}"/><path d="{}"/></g>')
    return template.format(colour % COLOURS, path, path) if path else Markup("")


def all_layers(drawing: Drawing, width: int, height: int, colour: int) -> Markup:
    """Return all layers of a drawing, from bottom to top: overlay, areas, strokes, labels."""
    uri = resized_uri(drawing.overlay, width, height, transparent=True) if drawing.overlay else None
    layers = [Markup('<image href="{}" width="{}" height="{}"/>').format(uri, width, height)] if uri else []
    for area in drawing.areas[:MOST_AREAS]:
        path = ""
        for ring in sorted(area.rings, key=len, reverse=True)[:MOST_RINGS]:
            places = [(x * width, y * height) for x, y in ring if math.isfinite(x) and math.isfinite(y)]
            path += f"M{'L'.join(f'{_n(x)} {_n(y)}' for x, y in places)}Z" if len(places) > 1 else ""
        shape = Markup('<path class="area ink{}" d="{}"/>').format(area.colour % COLOURS, path)
        layers += [shape] if path else []
    layers.append(strokes(drawing, width, height, colour))
    for label in drawing.labels[:MOST_LABELS]:
        if math.isfinite(label.x) and math.isfinite(label.y):
            text, size = shorten(label.text, LETTERS), max(9, round((width + height) / 42))
            x = max(1.0, min(label.x * width + 2, width - 0.56 * size * len(text)))
            y = min(max(label.y * height + size, float(size)), height - 3.0)
            template = Markup('<text class="label" x="{}" y="{}" font-size="{}">{}</text>')
            layers.append(template.format(_n(x), _n(y), size, text))
    return Markup("").join(layers)


def resized_uri(data: bytes, width: int, height: int, *, transparent: bool = False) -> str | None:
    """Return an encoded image at another size (px) as a data URI; None if OpenCV cannot decode it.

    The result is a PNG if transparency is kept, otherwise a JPEG.
    """
    if not data or len(data) > MOST_BYTES:
        return None
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED if transparent else cv2.IMREAD_COLOR)
    except cv2.error:  # larger than OpenCV accepts
        return None
    if image is None or image.dtype != np.uint8:
        return None
    if not transparent:
        return image_uri(as_jpeg(_resize(image, width, height)))
    while True:  # halves the size until it has at most 100 kB; the page stretches it over its frame
        png = cv2.imencode(".png", _resize(image, width, height))[1].tobytes()
        if len(png) <= _LARGEST or max(width, height) <= _SMALLEST:
            return image_uri(png, "png")
        width, height = width // 2, height // 2


def _resize(image: NDArray[Any], width: int, height: int) -> NDArray[np.uint8]:
    method = cv2.INTER_AREA if image.shape[0] > height else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, (max(1, width), max(1, height)), interpolation=method), np.uint8)
