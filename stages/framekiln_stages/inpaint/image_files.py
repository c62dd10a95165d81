"""Painted frames as PNG files.

A PNG holds each row as differences of neighbouring pixels, compressed by igzip (isal): 7 ms a megapixel on one core,
where libpng takes 45 ms at its fastest level for files that are 4 % smaller. Measured on three photos of 1 MP; one of
12 MP takes 76 instead of 439 ms. Lossless WebP takes 35 ms at its fastest, by Pillow, for files a third smaller.
"""

import struct

import numpy as np
from isal import isal_zlib

from framekiln.contract import Image

PNG_START = b"\x89PNG\r\n\x1a\n"
SUB = 1  # the filter: a pixel's difference from the one to its left (PNG, 9.2)
LEVEL = 1  # of igzip, 0 to 3: 0 is a tenth faster and a fifth larger, 2 and 3 gain 2 %


def png(image: Image) -> bytes:
    """Return an RGB image (h w 3) as a PNG file."""
    height, width = image.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # eight bits a sample, RGB
    levels = np.ascontiguousarray(image).reshape(height, -1)
    rows = np.empty((height, 1 + levels.shape[1]), np.uint8)
    rows[:, 0], rows[:, 1:4] = SUB, levels[:, :3]
    np.subtract(levels[:, 3:], levels[:, :-3], out=rows[:, 4:])
    parts = (
        _make_chunk(b"IHDR", header),
        _make_chunk(b"IDAT", isal_zlib.compress(rows, LEVEL)),
        _make_chunk(b"IEND", b""),
    )
    return b"".join((PNG_START, *parts))


def _make_chunk(kind: bytes, data: bytes) -> bytes:
    check = isal_zlib.crc32(data, isal_zlib.crc32(kind))
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
