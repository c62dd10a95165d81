"""BMP photos that Pillow does not read: odd bit fields, 2 bits a pixel, and a whole JPEG or PNG inside."""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pil

from framekiln.contract.columns import Image
from framekiln.contract.errors import MediaError, Reason
from framekiln.media.file_types import Kind, detect_kind

_FILE_HEADER, _INFO_HEADER = 14, 40  # bytes; headers older than BITMAPINFOHEADER have no such photos
_BIT_FIELDS = 3  # BI_BITFIELDS
_ENCLOSED = {4: "JPEG", 5: "PNG"}  # BI_JPEG and BI_PNG


@dataclass(frozen=True)
class Bmp:
    """The header of a BMP, in the order of the file."""

    start: int  # start of the pixels, in bytes
    info_size: int  # size of the second header, in bytes
    width: int  # px
    signed_height: int  # px; negative if the top row comes first
    bits: int  # bits of a pixel
    compression: int
    size: int  # size of the pixels, in bytes; 0: not stated
    colours: int  # colours in the palette; 0: as many as the bits allow
    orientation: int = 1  # BMP states none

    @classmethod
    def of(cls, data: bytes) -> "Bmp | None":
        """Return the header of a file; None if it is too short, or has an older header."""
        if len(data) < _FILE_HEADER + _INFO_HEADER:
            return None
        return cls(*struct.unpack_from("<IIii2xHII8xI", data, 10))  # without planes and resolution

    @property
    def height(self) -> int:
        return abs(self.signed_height)

    @property
    def stride(self) -> int:
        """Bytes of a row."""
        return -(-self.width * self.bits // 32) * 4

    @property
    def end(self) -> int:
        """End of the pixels in the file."""
        return self.start + self.height * self.stride

    @property
    def has_two_bits(self) -> bool:
        """True for 2 bits a pixel, as Windows CE writes them."""
        return self.info_size >= _INFO_HEADER and self.bits == 2 and not self.compression

    def has_bit_fields(self, data: bytes) -> bool:
        """Return whether each channel has its own bits in a pixel of 16 or 32."""
        stated = self.info_size >= _INFO_HEADER and self.compression == _BIT_FIELDS and self.bits in (16, 32)
        return stated and len(data) >= 66 and all(_read_masks(data))

    def image(self, data: bytes) -> Pil.Image:
        """Return the photo; each bit field is scaled to 0 to 255. Raises ValueError: pixels are missing."""
        rows = np.frombuffer(data, np.uint8, self.height * self.stride, self.start).reshape(self.height, self.stride)
        image = self._read_palette(rows, data) if self.bits == 2 else self._read_fields(rows, data)
        return Pil.fromarray(image if self.signed_height < 0 else np.ascontiguousarray(image[::-1]))

    def _read_palette(self, rows: NDArray[np.uint8], data: bytes) -> Image:
        """Return the colours of four pixels a byte; black for missing colours."""
        first = _FILE_HEADER + self.info_size
        stored = np.frombuffer(data[first : first + 4 * min(self.colours or 4, 4)], np.uint8)
        palette = np.zeros((4, 4), np.uint8)  # colours; B G R and an unused byte
        palette.reshape(-1)[: len(stored)] = stored
        numbers = (rows[:, :, None] >> np.array([6, 4, 2, 0], np.uint8)) & 3
        return palette[:, 2::-1][numbers.reshape(self.height, -1)[:, : self.width]]

    def _read_fields(self, rows: NDArray[np.uint8], data: bytes) -> Image:
        values = np.ascontiguousarray(rows).view(f"<u{self.bits // 8}")[:, : self.width]
        channels = []
        for mask in _read_masks(data):
            shift = (mask & -mask).bit_length() - 1
            levels = ((values & mask) >> shift).astype(np.float32)
            channels.append(np.rint(levels * (255.0 / (mask >> shift))).astype(np.uint8))
        return np.stack(channels, axis=2)


def _read_masks(data: bytes) -> tuple[int, ...]:
    return struct.unpack_from("<III", data, _FILE_HEADER + _INFO_HEADER)


def enclosed_photo(data: bytes, kind: Kind) -> tuple[bytes, Kind]:
    """Return the photo inside a BMP, and its kind; the file itself if it encloses none.

    Raises MediaError: CORRUPT if other bytes are in the photo's place.
    """
    header = Bmp.of(data) if kind.name == "BMP" else None
    if header is None or header.compression not in _ENCLOSED:
        return data, kind
    inside = data[header.start : header.start + header.size] if header.size else data[header.start :]
    stated = _ENCLOSED[header.compression]
    try:
        found = detect_kind(inside)
    except MediaError as error:
        raise MediaError(Reason.CORRUPT, f"BMP: no {stated} where the header places it") from error
    if found.name != stated:
        raise MediaError(Reason.CORRUPT, f"BMP: the header states a {stated}, the file has another")
    return inside, found
