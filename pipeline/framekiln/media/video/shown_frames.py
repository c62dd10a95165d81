"""Decoded video frames as they are shown: colours, orientation and time.

Pixels are as stored, without correction for non-square pixels. HDR is mapped to sRGB. Colours follow the stream's
matrix. A stream without one is read as the player mpv does. It is BT.709 if at least 1280 wide or more than 576 high,
else BT.601.
"""

from contextlib import suppress
from fractions import Fraction
from functools import cache
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from framekiln.contract.columns import Image
from framekiln.contract.errors import MediaError, Reason
from framekiln.media.frames import reduce_by
from framekiln.media.hdr import hdr_name, map_frame

_BT709, _UNSPECIFIED, _BT601 = 1, 2, 5  # AVColorSpace; ITU-T H.273, table 4
_WEIGHTS = {1: (0.2126, 0.0722), 5: (0.299, 0.114), 6: (0.299, 0.114), 9: (0.2627, 0.0593)}  # of red and blue; likewise
_MATRICES = (*range(8), 9)  # matrices that libswscale converts
_FULL = 2  # AVColorRange


def to_rgb(av_frame: Any, reformatter: Any) -> Image:
    """Return a decoded frame as stored, RGB uint8 h w 3; the `VideoReformatter` is reused from frame to frame."""
    if hdr_name(av_frame.color_primaries, av_frame.color_trc):
        with suppress(TypeError, av.FFmpegError):  # libav before 8 cannot convert; the plain conversion below can
            return map_frame(av_frame, reformatter)
    if av_frame.colorspace not in _MATRICES:
        message = f"its colours have the matrix {av_frame.colorspace} of ITU-T H.273, which is not read; convert it"
        raise MediaError(Reason.UNSUPPORTED, message)
    matrix = None  # the frame's own
    if av_frame.colorspace == _UNSPECIFIED and not av_frame.format.is_rgb:
        matrix = untagged_matrix(av_frame)
    return reformatter.reformat(
        av_frame, format="rgb24", src_colorspace=matrix, dst_colorspace=matrix, threads=1
    ).to_ndarray()


def to_small_rgb(av_frame: Any, factor: int) -> Image | None:
    """Return the means of squares of a stored frame, RGB; None if it must first be converted at full size.

    Brightness and colours are reduced before conversion, which takes 0.4 of the time for 1920 x 1080.
    """
    matrix = untagged_matrix(av_frame) if av_frame.colorspace == _UNSPECIFIED else av_frame.colorspace
    is_plain = av_frame.format.name in ("yuv420p", "yuvj420p") and matrix in _WEIGHTS
    if not is_plain or hdr_name(av_frame.color_primaries, av_frame.color_trc):
        return None
    small = []
    for plane, side in zip(av_frame.planes, (factor, factor // 2, factor // 2), strict=True):
        if plane.line_size < plane.width:  # bottom up
            return None
        rows = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
        small.append(reduce_by(rows[:, : plane.width], side))
    is_full = av_frame.color_range == _FULL or av_frame.format.name == "yuvj420p"
    return np.asarray(cv2.transform(cv2.merge(small), _make_matrix(matrix, is_full)), np.uint8)


@cache
def _make_matrix(matrix: int, is_full: bool) -> NDArray[np.float64]:
    """Return the matrix (3 4) from codes Y, Cb, Cr and 1 to R, G, B; ITU-T H.273, 8.3."""
    red, blue = _WEIGHTS[matrix]
    green = 1 - red - blue
    light, colour, black = (1.0, 2.0, 0) if is_full else (255 / 219, 2 * 255 / 224, 16)
    rows = np.array(
        [
            [light, 0, (1 - red) * colour],
            [light, -blue * (1 - blue) / green * colour, -red * (1 - red) / green * colour],
            [light, (1 - blue) * colour, 0],
        ]
    )
    return np.column_stack([rows, -rows @ (black, 128, 128)])


def untagged_matrix(av_frame: Any) -> int:
    """Return the matrix, an AVColorSpace, of a frame without one."""
    return _BT709 if av_frame.width >= 1280 or av_frame.height > 576 else _BT601


# The display matrix of ISO/IEC 14496-12, 8.3.2, as an EXIF orientation:
# x' = a x + c y, y' = b x + d y, with y downwards
_ORIENTATIONS = {
    (1, 0, 0, 1): 1,
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
}
_BY_ANGLE = {-90: 6, 90: 8, 180: 3, -180: 3}  # orientation by PyAV's `rotation`, which knows no mirrors


class DisplayMatrix:
    """The orientation of successive frames.

    The matrix is read only when its angle changes: once read, libav's side data keeps a frame alive in a cycle.
    """

    def __init__(self) -> None:
        self._angle: int | None = None
        self._orientation = 1

    def orientation(self, av_frame: Any) -> int:
        """Return the EXIF orientation of a frame, 1 to 8; 1 for rotations that are no multiple of 90 degrees."""
        if av_frame.rotation != self._angle:
            self._angle = av_frame.rotation
            try:
                data = av_frame.side_data.get("DISPLAYMATRIX")
            except ValueError:  # PyAV lacks a name for data of another kind beside it, as spatial films have
                self._orientation = _BY_ANGLE.get(av_frame.rotation, 1)
                return self._orientation
            a, b, _, c, d = (1, 0, 0, 0, 1) if data is None else np.sign(np.frombuffer(data, np.int32)[:5]).tolist()
            self._orientation = _ORIENTATIONS.get((a, b, c, d), 1)
        return self._orientation


_GAP_S = 10.0  # as for transport streams


class FrameClock:
    """Times in seconds from the first frame, for a file with times in units of `base` seconds.

    The first frame's time is `origin`, in that unit, or that of the first decoded frame. Frames without a time follow
    by the frame rate. Without an origin times never fall: if they do, as in joined files, the clock continues.
    """

    def __init__(self, fps: float | None, base: Fraction, origin: int | None = None) -> None:
        self._base, self._rises = base, origin is None
        self._shift = self._shift_before = 0.0  # s, added where times restarted, and before the last such place
        self._step = 1.0 / fps if fps else 0.0
        self._last = None if origin is None else float(origin * base)
        self.origin = self._last or 0.0  # s, on the clock of the container; valid after the first frame

    def time_s(self, pts: int | None) -> float:
        """Return the time of the next frame; libav's `Frame.time` lacks a time base after a decoding error."""
        follows = self._last + self._step if self._last is not None else 0.0
        now = follows if pts is None else float(pts * self._base) + self._shift
        if self._rises and self._last is not None and pts is not None:
            earlier = now - self._shift + self._shift_before
            if now < self._last:
                self._shift_before, self._shift = self._shift, self._shift + follows - now
                now = follows
            elif self._last < earlier < now and earlier - self._last < _GAP_S:  # only some frames had wrong times
                self._shift, now = self._shift_before, earlier
        if self._last is None:
            self.origin = now
        self._last = now
        return float(now - self.origin)
