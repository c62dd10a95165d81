"""High dynamic range to sRGB by libswscale, for videos and photos alike."""

import threading
from functools import lru_cache
from typing import Any

import numpy as np

from framekiln.contract.columns import Image

_TRANSFERS = {16: "PQ", 18: "HLG"}  # AVColorTransferCharacteristic (ITU-R BT.2100); ITU-T H.273, table 3
_PRIMARIES = {1: "BT.709", 9: "BT.2020", 11: "DCI-P3", 12: "Display P3"}  # AVColorPrimaries; H.273, table 2
_BT709, _SRGB, _RGB, _FULL = 1, 13, 0, 2  # primaries, transfer, AVColorSpace, AVColorRange
_TILE = 256  # px, side: 2 ms, and 0.2 MB for a smaller photo


def hdr_name(primaries: int, transfer: int) -> str | None:
    """Return the name of colours that need mapping, such as "CICP BT.2020 PQ"; None for others."""
    if transfer in _TRANSFERS and primaries in _PRIMARIES:
        return f"CICP {_PRIMARIES[primaries]} {_TRANSFERS[transfer]}"
    return None


def map_frame(av_frame: Any, reformatter: Any) -> Image:
    """Return a decoded frame with such colours in sRGB (h w 3). Raises TypeError, av.FFmpegError: libav before 8."""
    return reformatter.reformat(
        av_frame, format="rgb24", dst_color_trc=_SRGB, dst_color_primaries=_BT709, threads=1
    ).to_ndarray()


def map_image(image: Image, *, primaries: int, transfer: int) -> Image:
    """Return the image of a photo (h w 3) with such colours in sRGB, pixel by pixel.

    It is mapped in equal tiles: libswscale takes 1.4 s to prepare for each image size and colour space.
    """
    import av  # loads libav, which other photos do not need

    pixels, count = image.reshape(-1, 3), _TILE * _TILE
    result = np.empty_like(pixels)
    for start in range(0, len(pixels), count):
        part = pixels[start : start + count]
        tile = np.zeros((count, 3), np.uint8)
        tile[: len(part)] = part
        av_frame = av.VideoFrame.from_ndarray(tile.reshape(_TILE, _TILE, 3), format="rgb24")
        av_frame.colorspace, av_frame.color_range = _RGB, _FULL
        av_frame.color_trc, av_frame.color_primaries = transfer, primaries
        mapped = map_frame(av_frame, _keep_reformatter(threading.get_ident(), primaries, transfer))
        result[start : start + count] = mapped.reshape(-1, 3)[: len(part)]
    return result.reshape(image.shape)


@lru_cache(maxsize=8)  # a thread works on photos of few kinds
def _keep_reformatter(thread: int, primaries: int, transfer: int) -> Any:  # noqa: ARG001 - one for each of them
    from av.video.reformatter import VideoReformatter

    return VideoReformatter()
