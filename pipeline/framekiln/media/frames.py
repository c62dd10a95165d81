"""Frames: those that are requested, and the common result of all decoders, for photos and videos alike.

Shapes: h height, w width, 3 channels R, G, B; all uint8.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.contract.columns import Image, reduction, short_side
from framekiln.contract.errors import MediaError, Reason
from framekiln.media.config import DecodeConfig
from framekiln.media.images.transforms import TRANSPOSED, upright
from framekiln.media.video.segments import VideoSegment

Sound = NDArray[np.int16]  # mono samples at columns.SOUND_RATE
Reduced = Callable[[int], Image]
"""A function from a factor, as `reduction` returns it, to an image with sides of 1/factor."""
FAST_SHORT_SIDE = 360  # px: a face of an eighth of the height still has the 45 px that detectors need


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One decoded frame, upright."""

    index: int  # in its file, in display order
    height: int  # of `frame`, requested or not
    width: int
    images: Mapping[str, Image]  # by pixel column
    dropped_bytes: int = 0  # of requested pixels that are not made, since no step reads them
    time_s: float | None = None  # from the first frame; None for a photo
    sound: Sound | None = None  # until the next kept frame; None if the file has none, or it was not requested
    is_key: bool = False  # a good start for a clip
    after_loss: bool = False  # frames before it were lost, so no clip may continue across

    @property
    def nbytes(self) -> int:
        """Bytes of the requested pixels."""
        return self.dropped_bytes + sum(image.nbytes for image in self.images.values())


@dataclass(frozen=True, kw_only=True)
class LostFrames:
    """A stretch of a file that could not be decoded, although decoding continued after it."""

    index: int  # of the first missing frame
    error: MediaError


@dataclass(frozen=True, kw_only=True)
class FrameSource:
    """An opened file; decoding happens while `frames` is read, and may raise `MediaError` at any frame."""

    media_type: str  # photo, animation or video
    frames: Iterator[Frame | LostFrames]
    fps: float | None = None
    segment: VideoSegment | None = None  # the part of a film that `frames` begins with; None: all of the file


@dataclass(frozen=True, kw_only=True)
class FrameSpec:
    """The columns to make of each frame, and the rules of decoding."""

    pixels: tuple[str, ...]  # names of pixel columns
    dropped: tuple[str, ...] = ()  # further ones that are not made, but count in the size of packets
    sound: bool = False
    config: DecodeConfig

    def keeps(self, index: int) -> bool:
        """Return whether the frame with this number is kept."""
        return index % self.config.every_nth == 0

    def factor(self, name: str, height: int, width: int) -> int:
        """Return the reduction of a pixel column, which never depends on the other columns."""
        return max(self._base_factor(height, width), reduction(height, width, short_side(name)))

    def dropped_bytes(self, height: int, width: int) -> int:
        """Return the bytes that the dropped columns would have."""
        factors = (self.factor(name, height, width) for name in self.dropped)
        return sum(3 * -(-height // factor) * -(-width // factor) for factor in factors)

    def frame(self, index: int, size: tuple[int, int], orientation: int, make: Reduced, **values: Any) -> Frame:
        """Return a frame in all requested sizes, upright, with further fields of `Frame`.

        Its stored height and width are `size`; `make` is called once for each factor.
        """
        factors = {name: self.factor(name, *size) for name in self.pixels}
        made = {factor: upright(make(factor), orientation) for factor in set(factors.values())}
        base = self._base_factor(*size)
        shown = tuple(-(-side // base) for side in size)
        height, width = shown[::-1] if orientation in TRANSPOSED else shown
        images = {name: made[factor] for name, factor in factors.items()}
        return Frame(
            index=index, height=height, width=width, images=images, dropped_bytes=self.dropped_bytes(*size), **values
        )

    def check_size(self, height: int, width: int) -> None:
        """Reject an image above the limit before it is decoded.

        Raises:
            MediaError: TOO_LARGE; CORRUPT if a side is not positive.
        """
        if height <= 0 or width <= 0:
            raise MediaError(Reason.CORRUPT, f"the header states {width} x {height} pixels")
        if height * width > self.config.max_pixels:
            message = f"the header states {width} x {height} pixels, the limit is {self.config.max_pixels:,}"
            raise MediaError(Reason.TOO_LARGE, message)

    def _base_factor(self, height: int, width: int) -> int:
        """Return the reduction of `frame` itself: in fast mode to a short side of at least FAST_SHORT_SIDE."""
        return reduction(height, width, FAST_SHORT_SIDE) if self.config.fast_mode else 1
