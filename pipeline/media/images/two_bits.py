"""BMP photos with 2 bits a pixel, as Windows CE writes them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from pipeline.contract.columns import Image

_BITS, _COLOURS = 2, 4
_INFO_HEADER = 40  # bytes of the least BITMAPINFOHEADER; the older one knows no such photos
_FILE_HEADER = 14  # bytes before it


@dataclass(frozen=True, kw_only=True)
class TwoBits:
    """The header of such a photo."""

    height: int  # px
    width: int
    palette: np.ndarray  # 4 3 uint8, RGB; black where the file has fewer colours
    start: int  # of the pixels, in bytes
    top_down: bool
    orientation: int = 1  # BMP states none

    @classmethod
    def of(cls, data: bytes) -> TwoBits | None:
        """Return the header of a BMP; None if it has another number of bits, or is compressed."""
        if len(data) < _FILE_HEADER + _INFO_HEADER:
            return None
        start, size, width, height, _, bits, compression = struct.unpack_from("<IIiiHHI", data, 10)
        if size < _INFO_HEADER or bits != _BITS or compression:
            return None
        used = struct.unpack_from("<I", data, 46)[0]
        first = _FILE_HEADER + size
        stored = np.frombuffer(data[first : first + 4 * min(used or _COLOURS, _COLOURS)], np.uint8)
        palette = np.zeros((_COLOURS, 4), np.uint8)
        palette.reshape(-1)[: len(stored)] = stored
        bgr = palette[:, 2::-1]
        return cls(height=abs(height), width=width, palette=bgr, start=start, top_down=height < 0)

    def image(self, data: bytes) -> Image:
        """Return the photo (h w 3).

        Raises:
            ValueError: pixels are missing.
        """
        stride = -(-self.width * _BITS // 32) * 4
        rows = np.frombuffer(data, np.uint8, self.height * stride, self.start).reshape(self.height, stride)
        places = (rows[:, :, None] >> np.array([6, 4, 2, 0], np.uint8)) & 3
        image = self.palette[places.reshape(self.height, -1)[:, : self.width]]
        return image if self.top_down else np.ascontiguousarray(image[::-1])
