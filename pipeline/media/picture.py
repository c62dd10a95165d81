"""From a decoder's picture to the one a stage sees: its colours, and which way up it stands.

Pixels are the stored ones, turned as the file's display matrix says, without correction for pixels that are not square;
HDR is mapped to sRGB. Colours follow the matrix that the stream names; one that names none is taken for BT.709 where it
is at least 1280 wide or more than 576 high, and for BT.601 otherwise, as the player mpv does.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import av
import numpy as np

from pipeline.columns import Image

_BT709, _UNSPECIFIED, _BT601 = 1, 2, 5  # AVColorSpace; ITU-T H.273, table 4
_HDR, _SRGB = (16, 18), 13  # AVColorTransferCharacteristic: PQ and HLG (ITU-R BT.2100), sRGB; H.273, table 3
_NAMED_PRIMARIES = (1, 9, 11, 12)  # AVColorPrimaries: BT.709, BT.2020, DCI-P3, Display P3; H.273, table 2


def rgb(picture: Any, convert: Any) -> Image:
    """A decoded picture as stored, RGB uint8 h w 3; `convert` is a `VideoReformatter`, kept from picture to picture."""
    if picture.color_trc in _HDR and picture.color_primaries in _NAMED_PRIMARIES:
        with suppress(TypeError, av.FFmpegError):  # a libav older than 8 does not convert; the plain way below does
            return convert.reformat(
                picture, format="rgb24", dst_color_trc=_SRGB, dst_color_primaries=_BT709, threads=1
            ).to_ndarray()
    matrix = None  # the frame's own
    if picture.colorspace == _UNSPECIFIED and not picture.format.is_rgb:
        matrix = _BT709 if picture.width >= 1280 or picture.height > 576 else _BT601
    return convert.reformat(
        picture, format="rgb24", src_colorspace=matrix, dst_colorspace=matrix, threads=1
    ).to_ndarray()


class Turns:
    """The display matrix (ISO/IEC 14496-12, 8.3.2) as an EXIF orientation; 1 for turns by other than quarters.

    It is looked at again only when its angle changes: libav's side data, once touched, keep a frame alive in a cycle.
    """

    def __init__(self) -> None:
        self._angle: int | None = None
        self._orientation = 1

    def orientation(self, picture: Any) -> int:
        """Of one picture, as EXIF numbers them: 1 to 8."""
        if picture.rotation != self._angle:
            self._angle = picture.rotation
            self._orientation = _by_matrix(picture.side_data.get("DISPLAYMATRIX"))
        return self._orientation


def _by_matrix(data: Any) -> int:
    if data is None:
        return 1
    a, b, _, c, d = np.sign(np.frombuffer(data, dtype=np.int32)[:5]).tolist()
    return _TURNS.get((a, b, c, d), 1)


# x' = a x + c y, y' = b x + d y, with y downwards
_TURNS = {
    (1, 0, 0, 1): 1,
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
}
