"""Rows and media that a stage is called with in tests, and helpers of all checks.

Shapes: h height, w width; all pixels are uint8 RGB.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from framekiln.contract.columns import (
    DIGEST,
    SOUND,
    SOUND_RATE,
    SOURCE,
    TAGS,
    Image,
    is_pixel_column,
    pack,
    reduction,
    short_side,
)
from framekiln.contract.stage import Media, Stage

HEIGHT, WIDTH = 360, 480  # px, height and width of a sample frame at full size
FPS = 25.0
_BLOCK = 40  # px, height and width of a block of one colour
_SPEED = 4  # px that the scene moves to the left from frame to frame
_TONE = 440.0  # Hz


def sample_rows(columns: Sequence[str], count: int = 6) -> pa.Table:
    """Return the rows of one clip of a video, or of a photo where `count` is 1.

    Decoding provides these columns: `SOURCE`, pixel columns, `sound`, `tags` and `digest`.
    Raises ValueError: decoding does not provide a column.
    """
    return pa.table({name: _make_column(name, count) for name in columns})


def sample_frame(number: int, pixels: str = "frame") -> Image:
    """Return a frame of the sample video (h w 3), in the size of a pixel column."""
    blocks = np.random.default_rng(0).integers(0, 256, (HEIGHT // _BLOCK, 2 * WIDTH // _BLOCK, 3), np.uint8)
    scene = blocks.repeat(_BLOCK, axis=0).repeat(_BLOCK, axis=1)
    image = np.roll(scene, -_SPEED * number, axis=1)[:, :WIDTH]
    factor = reduction(HEIGHT, WIDTH, short_side(pixels))
    return np.ascontiguousarray(image[::factor, ::factor])


class SampleMedia:
    """The frames of the sample video, as a MEDIA stage with `reads_media` receives them."""

    def __init__(self, count: int = 6) -> None:
        self._count = count

    def frames(self, pixels: str) -> Iterator[tuple[int, Image]]:
        return ((number, sample_frame(number, pixels)) for number in range(self._count))


@dataclass(frozen=True, kw_only=True)
class StageSample:
    """The inputs of a stage's calls."""

    rows: pa.Table  # its input columns; one clip for a CLIP stage, one file for a MEDIA stage
    tables: Mapping[str, pa.Table] = field(default_factory=dict)  # its input tables
    media: Media = field(default_factory=SampleMedia)  # for a stage with `reads_media`


def _make_column(name: str, count: int) -> pa.Array:
    photo = count == 1
    if is_pixel_column(name):
        return pack([sample_frame(number, name) for number in range(count)])
    if name == "sound":
        length = round(SOUND_RATE / FPS)  # samples that play during a frame
        tone = 8000 * np.sin(2 * np.pi * _TONE * np.arange(count * length) / SOUND_RATE)
        parts = tone.astype(np.int16).reshape(count, length)
        return pa.array([None if photo else part for part in parts], SOUND)
    if name == "tags":
        return pa.array([[("exif:DateTimeOriginal", "2024:02:29 12:30:00")]] * count, TAGS)
    if name == "digest":
        return pa.array([bytes(DIGEST.byte_width) if photo else None] * count, DIGEST)
    values: dict[str, list[Any]] = {
        "media_id": ["sample.jpg" if photo else "sample.mp4"] * count,
        "frame_index": list(range(count)),
        "media_type": ["photo" if photo else "video"] * count,
        "clip_index": [0] * count,
        "time_s": [None if photo else number / FPS for number in range(count)],
        "fps": [None if photo else FPS] * count,
        "height": [HEIGHT] * count,
        "width": [WIDTH] * count,
        "damaged": [None] * count,
        "color_space": [None] * count,
    }
    if name not in values:
        raise ValueError(f"decoding provides no column {name!r}; pass rows that have it")
    return pa.array(values[name], SOURCE.field(name).type)


Check = Callable[[Stage, StageSample], None]
"""A function that raises an AssertionError where a stage breaks its rule."""


def require(condition: bool, rule: str) -> None:
    """Raise an AssertionError with this rule where the condition is false."""
    if not condition:
        raise AssertionError(rule)


def constructed(stage: Stage) -> Stage:
    """Return a newly constructed stage of the same settings."""
    return type(stage)(stage.config)


def nearly_equal(a: Any, b: Any) -> bool:
    """Return whether values are equal, floats to 1e-4 of their size or 1e-5, those of float16 to its last digit.

    A batch of another size may be summed in another order, which changes the last digits of float32.
    """
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(nearly_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(nearly_equal, a, b))
    if isinstance(a, float) and isinstance(b, float):
        digits = 2**-10 if _is_float16(a) and _is_float16(b) else 1e-4
        return math.isclose(a, b, rel_tol=digits, abs_tol=1e-5) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def _is_float16(value: float) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.float16(value) == value)
