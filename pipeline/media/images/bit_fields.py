"""BMP photos with bit fields in an order or of a width that Pillow refuses, such as 4 or 10 bits a channel."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from pipeline.contract.columns import Image

_BIT_FIELDS = 3  # BI_BITFIELDS of a BITMAPINFOHEADER


@dataclass(frozen=True, kw_only=True)
class BitFields:
    """The header of such a photo."""

    height: int  # px
    width: int
    bits: int  # of a pixel: 16 or 32
    masks: tuple[int, int, int]  # of red, green and blue
    start: int  # of the pixels, in bytes
    top_down: bool
    orientation: int = 1  # BMP states none

    @classmethod
    def of(cls, data: bytes) -> BitFields | None:
        """Return the header of a file; None if it has no bit fields of 16 or 32 bits."""
        if len(data) < 66:
            return None
        start, size, width, height, _, bits, compression = struct.unpack_from("<IIiiHHI", data, 10)
        masks = struct.unpack_from("<III", data, 54)
        if size < 40 or compression != _BIT_FIELDS or bits not in (16, 32) or not all(masks):
            return None
        return cls(height=abs(height), width=width, bits=bits, masks=masks, start=start, top_down=height < 0)

    def image(self, data: bytes) -> Image:
        """Return the photo (h w 3), each channel scaled to 0 to 255.

        Raises:
            ValueError: pixels are missing.
        """
        stride = -(-self.width * self.bits // 32) * 4
        rows = np.frombuffer(data, np.uint8, self.height * stride, self.start).reshape(self.height, stride)
        values = np.ascontiguousarray(rows).view(f"<u{self.bits // 8}")[:, : self.width]
        channels = [_scaled(values, mask) for mask in self.masks]
        image = np.stack(channels, axis=2)
        return image if self.top_down else np.ascontiguousarray(image[::-1])


def _scaled(values: np.ndarray, mask: int) -> np.ndarray:
    shift = (mask & -mask).bit_length() - 1
    levels = ((values & mask) >> shift).astype(np.float32)
    return np.rint(levels * (255.0 / (mask >> shift))).astype(np.uint8)
