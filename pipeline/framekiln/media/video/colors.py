"""Decoded video frames to RGB.

Pixels are as stored, without correction for non-square pixels. HDR is mapped to sRGB. Colours follow the stream's
matrix. A stream without one is read as BT.709 if it is at least 1280 wide or more than 576 high, and as BT.601
otherwise, as in the player mpv.
"""

from contextlib import suppress
from typing import Any

import av

from framekiln.contract.columns import Image

_BT709, _UNSPECIFIED, _BT601 = 1, 2, 5  # AVColorSpace; ITU-T H.273, table 4
_HDR, _SRGB = (16, 18), 13  # AVColorTransferCharacteristic: PQ and HLG (ITU-R BT.2100), sRGB; H.273, table 3
_HDR_PRIMARIES = (1, 9, 11, 12)  # AVColorPrimaries: BT.709, BT.2020, DCI-P3, Display P3; H.273, table 2


def to_rgb(av_frame: Any, reformatter: Any) -> Image:
    """Return a decoded frame as stored, RGB uint8 h w 3; the `VideoReformatter` is reused from frame to frame."""
    if av_frame.color_trc in _HDR and av_frame.color_primaries in _HDR_PRIMARIES:
        with suppress(TypeError, av.FFmpegError):  # libav before 8 cannot convert; the plain conversion below can
            return reformatter.reformat(
                av_frame, format="rgb24", dst_color_trc=_SRGB, dst_color_primaries=_BT709, threads=1
            ).to_ndarray()
    matrix = None  # the frame's own
    if av_frame.colorspace == _UNSPECIFIED and not av_frame.format.is_rgb:
        matrix = _BT709 if av_frame.width >= 1280 or av_frame.height > 576 else _BT601
    return reformatter.reformat(
        av_frame, format="rgb24", src_colorspace=matrix, dst_colorspace=matrix, threads=1
    ).to_ndarray()
