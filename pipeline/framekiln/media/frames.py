"""Requests for frames, frames as the result of all decoders, and limits on them.

Shapes: h height, w width, 3 channels R, G, B; all uint8.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln.contract.columns import Image, reduction, short_side
from framekiln.contract.errors import MediaError, Reason
from framekiln.media.config import DecodeConfig
from framekiln.media.units import VideoSegment

TRANSPOSED = (5, 6, 7, 8)  # EXIF orientations that swap height and width


def upright(image: Image, orientation: int) -> Image:
    """Return an image (h w 3) as it should be shown.

    The orientation is EXIF's, 1 to 8 (tag 0x0112; CIPA DC-008, 4.6.5.1.6); anything else counts as 1.
    """
    if orientation in TRANSPOSED:
        image = image.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return np.ascontiguousarray(image)


def reduce_by(image: Image, factor: int) -> Image:
    """Return the means of `factor` by `factor` squares of an image (h w 3), for a power of two.

    Sides are ceil(side / factor); squares beyond the edge repeat its pixels, as in libjpeg.
    """
    height, width = image.shape[:2]
    if height % factor or width % factor:
        image = cv2.copyMakeBorder(image, 0, -height % factor, 0, -width % factor, cv2.BORDER_REPLICATE)
    while factor > 1:  # by halves: five times as fast as in one step, and equal within one level
        image = cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_AREA)
        factor //= 2
    return image


Sound = NDArray[np.int16]  # mono samples at columns.SOUND_RATE
Reduced = Callable[[int], Image]
"""Returns the image with sides of 1/factor, for a factor from `reduction`."""
IsNeeded = Callable[[int, float | None, float | None, float | None], bool]
"""Returns whether some step needs a frame. Takes its number, its time and the time before (s), and frames a second."""
NO_PIXELS: Image = np.zeros((0, 0, 3), np.uint8)
"""Placeholder for pixels that no step needs."""
FAST_SHORT_SIDE = 360  # px: a face of an eighth of the height still has the 45 px that detectors need


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One decoded frame, upright."""

    index: int  # number in its file, in display order
    height: int  # height of `frame`, requested or not
    width: int
    images: Mapping[str, Image]  # images by pixel column
    dropped_bytes: int = 0  # bytes of requested pixels that are not made, since no step reads them
    time_s: float | None = None  # time from the first frame; None for a photo
    sound: Sound | None = None  # until the next kept frame; None if the file has none, or it was not requested
    is_key: bool = False  # a good start for a clip
    color_space: str | None = None  # colour space before conversion to sRGB
    damaged: str | None = None  # its damage: a decoder has filled in a part
    after_loss: bool = False  # frames before it were lost, so no clip may continue across it

    @property
    def nbytes(self) -> int:
        """Bytes of the requested pixels."""
        return self.dropped_bytes + sum(image.nbytes for image in self.images.values())


@dataclass(frozen=True, kw_only=True)
class LostFrames:
    """A stretch of a file that could not be decoded, although decoding continued after it."""

    index: int  # index of the first missing frame
    error: MediaError


@dataclass(frozen=True, kw_only=True)
class FrameSource:
    """An opened file; decoding happens while `frames` is read, and may raise `MediaError` at any frame."""

    media_type: str  # photo, animation or video
    frames: Iterator[Frame | LostFrames]
    fps: float | None = None
    tags: Mapping[str, str] | None = None  # tags of the file, if requested
    digest: bytes | None = None  # digest of the file's content, if requested
    segment: VideoSegment | None = None  # the part of a video with which `frames` begins; None: the whole file
    share_read: Callable[[], float] = lambda: 0.0  # of a whole video's bytes, 0 to 1, as its frames are read


@dataclass(frozen=True, kw_only=True)
class FrameSpec:
    """The columns to make of each frame, and the rules of decoding."""

    pixels: tuple[str, ...]  # names of pixel columns
    dropped: tuple[str, ...] = ()  # further columns that are not made, but count in the size of packets
    needed: Mapping[str, IsNeeded] = field(default_factory=dict)  # by column, if only some frames of a video are needed
    sound: bool = False
    tags: bool = False  # whether tags of the file are read
    config: DecodeConfig

    def keeps(self, index: int) -> bool:
        return index % self.config.every_nth == 0

    def factor(self, name: str, height: int, width: int) -> int:
        """Return the reduction of a pixel column, which does not depend on other columns."""
        return max(self._choose_base_factor(height, width), reduction(height, width, short_side(name)))

    def dropped_bytes(self, height: int, width: int) -> int:
        """Return the bytes that the dropped columns would have."""
        return self._count_bytes(self.dropped, height, width)

    def _count_bytes(self, columns: Sequence[str], height: int, width: int) -> int:
        factors = (self.factor(name, height, width) for name in columns)
        return sum(3 * -(-height // factor) * -(-width // factor) for factor in factors)

    def frame(
        self,
        index: int,
        size: tuple[int, int],
        orientation: int,
        make: Reduced,
        unneeded: Sequence[str] = (),
        **values: Any,
    ) -> Frame:
        """Return an upright frame in all needed sizes, with further fields of `Frame`.

        Its stored height and width are `size`; `make` is called once for each factor.
        """
        factors = {name: self.factor(name, *size) for name in self.pixels if name not in unneeded}
        made = {factor: upright(make(factor), orientation) for factor in set(factors.values())}
        base = self._choose_base_factor(*size)
        shown = tuple(-(-side // base) for side in size)
        height, width = shown[::-1] if orientation in TRANSPOSED else shown
        images = {name: made[factor] for name, factor in factors.items()} | dict.fromkeys(unneeded, NO_PIXELS)
        dropped = self._count_bytes((*self.dropped, *unneeded), *size)
        return Frame(index=index, height=height, width=width, images=images, dropped_bytes=dropped, **values)

    def check_size(self, height: int, width: int) -> None:
        """Reject an image above the limit before it is decoded.

        Raises MediaError: TOO_LARGE; CORRUPT if a side is not positive.
        """
        if height <= 0 or width <= 0:
            raise MediaError(Reason.CORRUPT, f"the header states {width} x {height} pixels")
        if height * width > self.config.max_pixels:
            message = f"the header states {width} x {height} pixels, the limit is {self.config.max_pixels:,}"
            raise MediaError(Reason.TOO_LARGE, message)

    def _choose_base_factor(self, height: int, width: int) -> int:
        """Return the reduction of `frame` itself: in fast mode to a short side of at least FAST_SHORT_SIDE."""
        return reduction(height, width, FAST_SHORT_SIDE) if self.config.fast_mode else 1


# The cost of decoding grows with pixels, and a file of one megabyte can contain a million frames of any size. So each
# file may have a fixed number of pixels, or a number for each of its bytes if that is more. Videos: 12,000 frames of
# 3840 x 2160 (some minutes of decoding), or four times the rate of x264 for a still image with a single key frame.
# Animations: 5,000 frames of 1000 x 1000, since Pillow composes each frame at a tenth of the speed.
_PIXELS = {"video": (10**11, 300_000), "animation": (5 * 10**9, 2_000)}  # of any file; for each of its bytes


def max_frames(media_type: str, height: int, width: int, size: int, max_length: int) -> int:
    """Return the most frames to decode of a video or an animation; sides in px, the file's size in bytes."""
    pixels, pixels_per_byte = _PIXELS[media_type]
    return min(max_length, max(1, max(pixels, pixels_per_byte * size) // (height * width)))


def too_many_frames(limit: int, max_length: int) -> MediaError:
    """Return the error for frames after the limit."""
    reason = "the limit of decode.max_length" if limit >= max_length else "the limit for a file of its size"
    return MediaError(Reason.TOO_LARGE, f"it continues after {limit:,} frames, {reason}")
