"""Drawings of stages over a thumbnail as SVG: strokes, filled areas, labels, and overlay images.

`Markup.format` escapes everything that is not a number. An image from a stage is decoded, scaled to the thumbnail and
encoded again, so that no foreign bytes enter the page.
"""

import math
from collections.abc import Iterable, Sequence

import cv2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from framekiln.contract.drawing import Area, Drawing, Label
from framekiln.reporting.html.gallery.thumbnails import as_jpeg
from framekiln.reporting.kit.formatting import coordinate as _n
from framekiln.reporting.kit.formatting import shorten
from framekiln.reporting.kit.pages import image_uri

COLOURS = 6  # in the style sheet; further drawings reuse them
MOST_AREAS = 40  # of one drawing
MOST_RINGS = 60  # of one area: a mask of specks has hundreds
MOST_LABELS = 24
LETTERS = 28  # of a label
MOST_BYTES = 64_000_000  # of an encoded image that is decoded
_DOT = 0.006  # radius of a point as a share of width plus height
_LARGEST = 100_000  # bytes of an overlay
_SMALLEST = 64  # px


def strokes(drawing: Drawing, width: int, height: int, colour: int) -> Markup:
    """Return a drawing's lines and points, with a dark edge that keeps them visible on any image.

    Values that are not finite are left out. The thumbnail's size is in px; `colour` is a number in the style sheet.
    """
    path = _lines(drawing.lines, width, height) + _points(drawing.points, width, height)
    template = Markup('<g class="ink ink{}"><path class="edge" d="{}"/><path d="{}"/></g>')
    return template.format(colour % COLOURS, path, path) if path else Markup("")


def all_layers(drawing: Drawing, width: int, height: int, colour: int) -> Markup:
    """Return all layers of a drawing, from bottom to top: overlay, areas, strokes, labels."""
    layers = [
        _overlay(drawing.overlay, width, height),
        *(_area(area, width, height) for area in drawing.areas[:MOST_AREAS]),
        strokes(drawing, width, height, colour),
        *(_label(label, width, height) for label in drawing.labels[:MOST_LABELS]),
    ]
    return Markup("").join(layers)


def resized_uri(data: bytes, width: int, height: int, *, transparent: bool = False) -> str | None:
    """Return an encoded image at another size (px) as a data URI; None where OpenCV cannot decode it.

    The result is a PNG if transparency is kept, otherwise a JPEG.
    """
    image = _decoded(data, transparent=transparent)
    if image is None:
        return None
    encoded = _as_png(image, width, height) if transparent else as_jpeg(_resized(image, width, height))
    return image_uri(encoded, "png" if transparent else "jpeg")


def _as_png(image: NDArray[np.uint8], width: int, height: int) -> bytes:
    """Encode as PNG, at half the size until it has 100 kB at most; the page stretches it over its frame."""
    while True:
        data = cv2.imencode(".png", _resized(image, width, height))[1].tobytes()
        if len(data) <= _LARGEST or max(width, height) <= _SMALLEST:
            return data
        width, height = width // 2, height // 2


def _resized(image: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    method = cv2.INTER_AREA if image.shape[0] > height else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, (max(1, width), max(1, height)), interpolation=method), np.uint8)


def _decoded(data: bytes, *, transparent: bool) -> NDArray[np.uint8] | None:
    if not data or len(data) > MOST_BYTES:
        return None
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED if transparent else cv2.IMREAD_COLOR)
    except cv2.error:  # larger than OpenCV opens
        return None
    return None if image is None or image.dtype != np.uint8 else np.asarray(image, np.uint8)


def _overlay(data: bytes | None, width: int, height: int) -> Markup:
    uri = resized_uri(data, width, height, transparent=True) if data else None
    template = Markup('<image href="{}" width="{}" height="{}"/>')
    return template.format(uri, width, height) if uri else Markup("")


def _area(area: Area, width: int, height: int) -> Markup:
    rings = sorted(area.rings, key=len, reverse=True)[:MOST_RINGS]
    path = "".join(_ring(ring, width, height) for ring in rings)
    return Markup('<path class="area ink{}" d="{}"/>').format(area.colour % COLOURS, path) if path else Markup("")


def _ring(ring: Sequence[tuple[float, float]], width: int, height: int) -> str:
    places = [(x * width, y * height) for x, y in ring if math.isfinite(x) and math.isfinite(y)]
    return f"M{'L'.join(f'{_n(x)} {_n(y)}' for x, y in places)}Z" if len(places) > 1 else ""


def _label(label: Label, width: int, height: int) -> Markup:
    """Return a label, moved inside the image where it fits."""
    if not (math.isfinite(label.x) and math.isfinite(label.y)):
        return Markup("")
    text, size = shorten(label.text, LETTERS), max(9, round((width + height) / 42))
    x = max(1.0, min(label.x * width + 2, width - 0.56 * size * len(text)))
    y = min(max(label.y * height + size, float(size)), height - 3.0)
    return Markup('<text class="label" x="{}" y="{}" font-size="{}">{}</text>').format(_n(x), _n(y), size, text)


def _lines(lines: Iterable[tuple[float, float, float, float]], width: int, height: int) -> str:
    scaled = [(a * width, b * height, c * width, d * height) for a, b, c, d in lines]
    finite = [line for line in scaled if all(map(math.isfinite, line))]
    return "".join(f"M{_n(a)} {_n(b)}L{_n(c)} {_n(d)}" for a, b, c, d in finite)


def _points(points: Iterable[tuple[float, float]], width: int, height: int) -> str:
    """Return points as crosses."""
    r = _DOT * (width + height)
    scaled = [(x * width, y * height) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    return "".join(f"M{_n(x - r)} {_n(y)}h{_n(2 * r)}M{_n(x)} {_n(y - r)}v{_n(2 * r)}" for x, y in scaled)
