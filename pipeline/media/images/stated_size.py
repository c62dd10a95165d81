"""Sizes that the header of an AVIF or HEIC photo states, read before a decoder sees the file.

libavif refuses more than 268 million pixels as if the file were damaged, and a grid of tiles states its size here only.
"""

from __future__ import annotations

import io
import re

from pipeline.media.frames import FrameSpec
from pipeline.media.video.truncation import boxes

_MAX_HEADER = 1 << 22  # bytes of the box `meta` that are searched: a grid of 10,000 tiles takes 1 MB
_SIZE = re.compile(rb"ispe\0{4}(.{4})(.{4})", re.S)  # ISO/IEC 23008-12, 6.5.3: version and flags, width, height


def check_stated_size(data: bytes, spec: FrameSpec) -> None:
    """Check the size of each image in the file.

    Raises:
        MediaError: TOO_LARGE.
    """
    for kind, start, stop in boxes(io.BytesIO(data), len(data)):
        if kind == b"meta":
            for match in _SIZE.finditer(data[start : min(stop, start + _MAX_HEADER)]):
                width, height = (int.from_bytes(side, "big") for side in match.groups())
                if width and height:
                    spec.check_size(height, width)
