"""TIFF photos of CMYK with further channels in 16 bits, as Photoshop writes them; Pillow has no name for these.

Pillow reads them, compressed or not, as a grey photo of five times the width: only the tags are written anew.
"""

import io
import struct
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from PIL import Image as Pil

from framekiln.contract.columns import Image
from framekiln.media.images.pillow import pixels_allowed
from framekiln.media.images.tiff import (
    BITS,
    COMPRESSION,
    FORMAT,
    HEIGHT,
    ORIENTATION,
    PHOTOMETRIC,
    PLANES,
    SAMPLES,
    WIDTH,
    read_tags,
)

_PREDICTOR, _TILE_WIDTH, _EXTRA = 317, 322, 338
_BLACK_IS_ZERO, _INK, _TOGETHER, _DIFFERENCES = 1, 5, 1, 2
_WITH_DIFFERENCES = (5, 8, 32946)  # LZW and Deflate; the tag means nothing for others
_NOT_OF_GREY = (_EXTRA, FORMAT, ORIENTATION, _PREDICTOR)
_ENTRY, _SHORT, _LONG = 12, 3, 4  # bytes of a tag; types
_CHANNELS = 4  # that are shown
_MOST = 6  # channels, as Pillow reads in 8 bits: memory grows with them


@dataclass(frozen=True, kw_only=True)
class WideCmyk:
    """The tags of such a photo; alpha and spot colours are not applied."""

    height: int  # px
    width: int
    samples: int  # channels
    orientation: int  # of EXIF, 1 to 8
    differences: bool  # each pixel is stored as the difference to the one before it

    @classmethod
    def of(cls, data: bytes) -> "WideCmyk | None":
        """Return the tags of a TIFF; None if its first page is of another kind, or damaged."""
        with suppress(Exception):  # damaged tags raise all kinds of errors; Pillow names them
            tags = read_tags(data)
            samples = 0 if tags is None else tags.get(SAMPLES, 1)
            if tags is None or not _CHANNELS < samples <= _MOST:
                return None
            expected = {PHOTOMETRIC: _INK, BITS: (16,) * samples, FORMAT: (1,) * samples, PLANES: _TOGETHER}
            if all(tags.get(tag, value) == value for tag, value in expected.items()) and _TILE_WIDTH not in tags:
                return cls(
                    height=tags[HEIGHT],
                    width=tags[WIDTH],
                    samples=samples,
                    orientation=turn if (turn := tags.get(ORIENTATION, 1)) in range(1, 9) else 1,
                    differences=tags.get(_PREDICTOR) == _DIFFERENCES and tags.get(COMPRESSION) in _WITH_DIFFERENCES,
                )
        return None

    @property
    def end(self) -> int:
        """Bytes to which a truncated file is filled; none, as Pillow fills it."""
        return 0

    def image(self, data: bytes) -> Image:
        """Return the photo (h w 3), from the upper 8 bits by Pillow's formula for CMYK.

        Raises OSError: pixels are missing or damaged.
        """
        with pixels_allowed(self.height * self.width * self.samples):
            grey = np.asarray(Pil.open(io.BytesIO(self._as_grey(data)), formats=["TIFF"]))
        values = grey.astype(np.uint16, copy=False).reshape(self.height, self.width, self.samples)
        if self.differences:
            values = np.cumsum(values, axis=1, dtype=np.uint16)
        ink = np.ascontiguousarray((values[:, :, :_CHANNELS] >> 8).astype(np.uint8))
        return np.asarray(Pil.frombuffer("CMYK", (self.width, self.height), ink, "raw", "CMYK", 0, 1).convert("RGB"))

    def _as_grey(self, data: bytes) -> bytes:
        """Return the file with other tags in the place of its own."""
        order = "<" if data[:2] == b"II" else ">"
        (start,) = struct.unpack_from(f"{order}I", data, 4)
        (count,) = struct.unpack_from(f"{order}H", data, start)
        first = start + 2
        entries = [data[place : place + _ENTRY] for place in range(first, first + _ENTRY * count, _ENTRY)]
        long, short = f"{order}HHII", f"{order}HHIHH"
        changed = {WIDTH: struct.pack(long, WIDTH, _LONG, 1, self.width * self.samples)}
        for tag, value in ((BITS, 16), (PHOTOMETRIC, _BLACK_IS_ZERO), (SAMPLES, 1)):
            changed[tag] = struct.pack(short, tag, _SHORT, 1, value, 0)
        tags = [struct.unpack_from(f"{order}H", entry)[0] for entry in entries]
        kept = [changed.get(tag, entry) for tag, entry in zip(tags, entries, strict=True) if tag not in _NOT_OF_GREY]
        written = struct.pack(f"{order}H", len(kept)) + b"".join(kept) + bytes(4)
        return data[:start] + written + data[start + len(written) :]
