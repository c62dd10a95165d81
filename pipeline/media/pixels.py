"""One way to the pixels a stage sees: which size was asked, how it is made smaller, and which way up it stands.

Shapes: h height, w width, 3 channels R, G, B; all uint8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import cv2
import numpy as np

from pipeline.columns import Image, reduction, short_side
from pipeline.errors import MediaError, Reason
from pipeline.media.frames import Frame

FAST_SHORT_SIDE = 360  # px: a face an eighth as high as the picture still has the 45 px that detectors need

_TURNED = (5, 6, 7, 8)  # orientations that swap height and width


def keep_to_one_thread() -> None:
    """Have OpenCV reduce pictures in the calling thread only: decode tasks run beside each other, one for each core."""
    cv2.setNumThreads(1)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be made of each frame."""

    pixels: tuple[str, ...]  # names of pixel columns
    counted: tuple[str, ...] = ()  # of further ones, which are not made: packets are cut as if they were
    sound: bool = False
    fast: bool = False  # `frame` is the smallest reduction with a short side of at least FAST_SHORT_SIDE
    every_nth: int = 1
    max_pixels: int
    max_length: int

    def keeps(self, index: int) -> bool:
        """Whether the frame of this number is wanted."""
        return index % self.every_nth == 0

    def base(self, height: int, width: int) -> int:
        """By how much `frame` itself is reduced."""
        return reduction(height, width, FAST_SHORT_SIDE) if self.fast else 1

    def factors(self, height: int, width: int) -> dict[str, int]:
        """By how much each pixel column is reduced; that of one never depends on which others there are."""
        return {name: self._factor(name, height, width) for name in self.pixels}

    def unmade(self, height: int, width: int) -> int:
        """Bytes that the columns which are only counted would have."""
        factors = (self._factor(name, height, width) for name in self.counted)
        return sum(3 * -(-height // factor) * -(-width // factor) for factor in factors)

    def make(self, height: int, width: int, at: Callable[[int], Image]) -> dict[str, Image]:
        """Each pixel column's image; `at(factor)` makes one and is called once for each factor."""
        factors = self.factors(height, width)
        made = {factor: at(factor) for factor in set(factors.values())}
        return {name: made[factor] for name, factor in factors.items()}

    def frame(
        self, index: int, size: tuple[int, int], orientation: int, full: Callable[[], Image], **more: Any
    ) -> Frame:
        """A frame of all the sizes asked.

        Args:
            index: its number in the file.
            size: height and width as stored.
            orientation: as for `upright`.
            full: makes the full picture as stored (h w 3); called once at most, and only where pixels were asked.
            more: what else there is to say in `Frame`.
        """
        height, width = size
        once = cache(full)
        images = self.make(height, width, lambda factor: upright(reduced(once(), factor), orientation))
        unmade = self.unmade(height, width)
        height, width = self.shown(height, width, orientation)
        return Frame(index=index, height=height, width=width, images=images, unmade=unmade, **more)

    def shown(self, height: int, width: int, orientation: int) -> tuple[int, int]:
        """Height and width of `frame`, given those stored."""
        base = self.base(height, width)
        sides = (-(-height // base), -(-width // base))
        return sides[::-1] if orientation in _TURNED else sides

    def _factor(self, name: str, height: int, width: int) -> int:
        return max(self.base(height, width), reduction(height, width, short_side(name)))

    def check(self, height: int, width: int) -> None:
        """Refuse a picture that is larger than the limit before it is unpacked.

        Raises:
            MediaError: TOO_LARGE; CORRUPT when a side is not positive.
        """
        if height <= 0 or width <= 0:
            raise MediaError(Reason.CORRUPT, f"its header says {width} x {height} pixels")
        if height * width > self.max_pixels:
            raise MediaError(
                Reason.TOO_LARGE,
                f"its header says {width} x {height} pixels, more than the limit of {self.max_pixels:,}",
            )


def reduced(image: Image, factor: int) -> Image:
    """Means of squares of `factor` by `factor` pixels.

    Sides are ceil(side / factor); squares that reach over the edge repeat its pixels, as libjpeg's do.
    """
    height, width = image.shape[:2]
    if height % factor or width % factor:
        image = cv2.copyMakeBorder(image, 0, -height % factor, 0, -width % factor, cv2.BORDER_REPLICATE)
    while factor > 1:  # by halves: five times as fast as at once, and the same within one level
        image = cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_AREA)
        factor //= 2
    return image


def upright(image: Image, orientation: int) -> Image:
    """The image as it is meant to be shown.

    Args:
        image: h w 3.
        orientation: 1 to 8 as in EXIF tag 0x0112 (CIPA DC-008, 4.6.5.1.6); anything else counts as 1.
    """
    if orientation in _TURNED:
        image = image.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return np.ascontiguousarray(image)
