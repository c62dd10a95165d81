"""TIFF photos for which Pillow has no mode, or which it shows too dark or too light.

They have wide, signed or floating-point channels, channels in planes, odd numbers of bits, further channels, or are
big-endian BigTIFF. Pillow unpacks each strip and tile, as a small grey TIFF of bytes.

White is the most that unsigned numbers have. It is 1 for floating-point colours, and grey with alpha, between 0 and 1.
Else no white is defined, nor for grey of more than 16 bits: the least and greatest finite values become 0 and 255.
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pil

from framekiln.contract.errors import MediaError, Reason
from framekiln.media.images import tiff
from framekiln.media.images.pillow import pixels_allowed

_STRIPS, _ROWS, _STRIP_BYTES, _TILE_WIDTH, _TILE_HEIGHT, _TILES, _TILE_BYTES = 273, 278, 279, 322, 323, 324, 325
_FILL_ORDER, _PREDICTOR, _PROFILE = 266, 317, 34675
_WHITE_IS_ZERO, _RGB = 0, 2  # photometric
_COLOURS = {_WHITE_IS_ZERO: 1, 1: 1, _RGB: 3, tiff.INDEXED: 1, tiff.INK: 4}  # channels, without alpha
_PLAIN, _DIFFERENCES, _OF_FLOATS, _BACKWARDS = 1, 2, 3, 2
_PACKED = (5, 8, 32773, 32946, 34925, 50000)  # LZW, Deflate, PackBits, LZMA and Zstd
_WITH_PREDICTOR = (5, 8, 32946, 34925, 50000)
_MOST = 6  # channels that Pillow reads in 8 bits
_LEAST_TILE, _MOST_TILE = 16, 4096  # px, a side: the least in TIFF 6.0; 16 MP
_MOST_BYTES = 1_200_000_000  # unpacked: 100 MP of three channels with 32 bits
_ALPHA = {1: ("La", "RGBa"), 2: ("LA", "RGBA")}  # multiplied with the colours, or not: modes of Pillow
_BAND = 64  # rows converted to levels at once


@dataclass(frozen=True)
class WideTiff:
    """A page of this kind."""

    page: tiff.Page

    @classmethod
    def of(cls, page: tiff.Page) -> "WideTiff":
        """Return a page. Raises MediaError: UNSUPPORTED, or TOO_LARGE if it would take too much memory."""
        result, limits = cls(page), {tiff.UNSIGNED: (1, 64), tiff.SIGNED: (8, 64), tiff.FLOAT: (16, 64)}
        bits, (low, high) = page.bits, limits.get(page.numbers, (1, 0))
        known = page.first(tiff.COMPRESSION, 1) in (_PLAIN, *_PACKED)
        whole = bits in (8, 16, 32, 64) or (bits < 16 and page.numbers == tiff.UNSIGNED)
        most_channels = _MOST if result._colours > 1 or result._alpha else 2
        enough = 0 < result._colours <= result._samples <= most_channels
        indexed = result._photometric != tiff.INDEXED or (
            bits <= 16 and len(page.tags.get(tiff.PALETTE, ())) == 3 << bits
        )
        sides = result._block[:2] if _TILES in page.tags else (_LEAST_TILE, _MOST_TILE)
        usual = _LEAST_TILE <= min(sides) <= max(sides) <= _MOST_TILE
        if not (known and whole and enough and indexed and usual and low <= bits <= high):
            raise page.unsupported
        if result.height * result.width * result._shown * result._dtype.itemsize > _MOST_BYTES:
            raise MediaError(Reason.TOO_LARGE, f"unpacked it has more than {_MOST_BYTES:,} bytes; convert it to 8 bits")
        return result

    @property
    def height(self) -> int:
        return self.page.height

    @property
    def width(self) -> int:
        return self.page.width

    @property
    def orientation(self) -> int:
        """The orientation of EXIF, 1 to 8."""
        return turn if (turn := self.page.first(tiff.ORIENTATION, 1)) in range(1, 9) else 1

    @property
    def end(self) -> int:
        """Bytes to which a truncated file is filled; none if compressed."""
        if self.page.first(tiff.COMPRESSION, 1) != _PLAIN:
            return 0
        offsets, _ = self._places
        height, width, samples = self._block
        return int(offsets.max(initial=0)) + height * -(-width * samples * self.page.bits // 8)

    def image(self, data: bytes) -> Pil.Image:
        """Return the photo with 8 bits a channel, its profile in `info`.

        Raises OSError: pixels are missing or damaged.
        """
        values = np.zeros((self.height, self.width, self._shown), self._dtype)
        with pixels_allowed(_MOST_BYTES):
            for at, block in self._read_blocks(data):
                target = values[at]
                target[...] = block[: target.shape[0], : target.shape[1]]
        image = self._make_image(values)
        if profile := self.page.tags.get(_PROFILE, np.empty(0)).tobytes():
            image.info["icc_profile"] = profile
        return image

    @property
    def _samples(self) -> int:
        return self.page.first(tiff.SAMPLES, 1)

    @property
    def _photometric(self) -> int:
        return self.page.first(tiff.PHOTOMETRIC, _RGB if self._samples > 2 else 1)

    @property
    def _colours(self) -> int:
        return _COLOURS.get(self._photometric, 0)

    @property
    def _alpha(self) -> int:
        can_have = self._colours in (1, 3) and self._photometric != tiff.INDEXED and self.page.numbers != tiff.SIGNED
        return next((kind for kind in self._extra if kind in _ALPHA), 0) if can_have else 0

    @property
    def _extra(self) -> list[int]:
        """The kinds of the channels after the colours; the first alpha among them counts."""
        return self.page.tags.get(tiff.EXTRA, np.empty(0, np.uint16))[: self._samples - self._colours].tolist()

    @property
    def _channels(self) -> list[int]:
        """The numbers of the channels that are shown."""
        return [*range(self._colours), *([self._colours + self._extra.index(self._alpha)] if self._alpha else [])]

    @property
    def _shown(self) -> int:
        return len(self._channels)

    @property
    def _dtype(self) -> np.dtype[Any]:
        bits = self.page.bits
        kind = {tiff.UNSIGNED: "u", tiff.SIGNED: "i", tiff.FLOAT: "f"}[self.page.numbers]
        return np.dtype(f"{kind}{bits // 8 if bits in (8, 16, 32, 64) else 1 if bits < 8 else 2}")

    @property
    def _is_apart(self) -> bool:
        return self.page.first(tiff.PLANES, 1) == tiff.APART

    @property
    def _block(self) -> tuple[int, int, int]:
        """Rows, columns and channels of a strip or tile."""
        channels = 1 if self._is_apart else self._samples
        if _TILES in self.page.tags:
            return self.page.first(_TILE_HEIGHT, 0), self.page.first(_TILE_WIDTH, 0), channels
        rows = self.page.first(_ROWS, self.height)
        return min(rows, self.height) if rows > 0 else self.height, self.width, channels

    @property
    def _places(self) -> tuple[NDArray[Any], NDArray[Any]]:
        offsets, counts = (_TILES, _TILE_BYTES) if _TILES in self.page.tags else (_STRIPS, _STRIP_BYTES)
        none = np.empty(0, np.uint64)
        return self.page.tags.get(offsets, none), self.page.tags.get(counts, none)

    def _read_blocks(self, data: bytes) -> Iterator[tuple[tuple[slice, slice, slice], NDArray[Any]]]:
        """Yield each strip's or tile's place among the shown values, and its values."""
        (height, width, channels), (offsets, counts) = self._block, self._places
        down, across = -(-self.height // height), -(-self.width // width)
        planes = self._channels if self._is_apart else [0]
        for place, tile in product(range(len(planes)), range(down * across)):
            number, (row, column) = planes[place] * down * across + tile, divmod(tile, across)
            if number >= len(offsets):
                raise OSError("the image is truncated: places of pixels are missing")
            rows = height if _TILES in self.page.tags else min(height, self.height - row * height)
            start, size = int(offsets[number]), rows * -(-width * channels * self.page.bits // 8)
            packed = self.page.first(tiff.COMPRESSION, 1) != _PLAIN
            stop = start + (int(counts[number]) if packed and number < len(counts) else size)
            if stop > len(data):
                raise OSError("the image is truncated: pixels are missing")
            values = self._unpack(data[start:stop], rows, size // rows).reshape(rows, width, channels)
            shown = slice(place, place + 1) if self._is_apart else slice(0, self._shown)
            at = slice(row * height, row * height + rows), slice(column * width, (column + 1) * width), shown
            yield at, values if self._is_apart else values[..., self._channels]

    def _unpack(self, stored: bytes, rows: int, row_bytes: int) -> NDArray[Any]:
        """Return the numbers of a strip or tile, as rows."""
        compression, backwards = self.page.first(tiff.COMPRESSION, 1), self.page.first(_FILL_ORDER, 1) == _BACKWARDS
        if compression != _PLAIN:
            small = _write_grey(stored, compression, rows, row_bytes, backwards=backwards)
            stored = Pil.open(io.BytesIO(small), formats=["TIFF"]).tobytes()
        raw = np.frombuffer(stored, np.uint8).reshape(rows, row_bytes)
        if backwards and compression == _PLAIN:
            raw = np.packbits(np.unpackbits(raw.reshape(-1), bitorder="little")).reshape(raw.shape)
        predictor = self.page.first(_PREDICTOR, 1) if compression in _WITH_PREDICTOR else 1
        channels, size = self._block[2], self._dtype.itemsize
        if self.page.bits not in (8, 16, 32, 64):
            values = _split_bits(raw, self.page.bits)[:, : self._block[1] * channels]
        elif predictor == _OF_FLOATS:
            summed = np.cumsum(raw.reshape(rows, -1, channels), axis=1, dtype=np.uint8)
            planes = summed.reshape(rows, size, -1)
            values = np.ascontiguousarray(planes.transpose(0, 2, 1)).view(self._dtype.newbyteorder(">"))[..., 0]
        else:
            values = raw.view(self._dtype.newbyteorder(">" if self.page.order == ">" else "<"))
        if predictor == _DIFFERENCES:
            whole = np.dtype(f"u{size}")
            values = values.astype(self._dtype).view(whole).reshape(rows, -1, channels)
            values = np.cumsum(values, axis=1, dtype=whole).reshape(rows, -1).view(self._dtype)
        return values

    def _make_image(self, values: NDArray[Any]) -> Pil.Image:
        if self._photometric == tiff.INDEXED:
            colours = self.page.tags[tiff.PALETTE].reshape(3, -1).T >> (0 if self.page.has_narrow_palette else 8)
            return Pil.fromarray(np.ascontiguousarray(colours.astype(np.uint8)[values[:, :, 0]]))
        levels = np.empty(values.shape, np.uint8)
        for channels in (slice(0, self._colours), slice(self._colours, None)):
            self._fill_levels(levels[..., channels], values[..., channels], is_alpha=channels.stop is None)
        if self._photometric == _WHITE_IS_ZERO:
            np.subtract(255, levels[..., 0], out=levels[..., 0])
        mode = _ALPHA[self._alpha][self._colours > 1] if self._alpha else {1: "L", 3: "RGB", 4: "CMYK"}[self._colours]
        image = Pil.frombytes(mode, (self.width, self.height), levels.tobytes())
        return image.convert(mode.upper()) if mode.endswith("a") else image

    def _fill_levels(self, levels: NDArray[np.uint8], values: NDArray[Any], *, is_alpha: bool) -> None:
        """Write the 8-bit levels of some channels."""
        bits, kind = self.page.bits, self._dtype.kind
        if not values.size:
            return
        if kind == "u" and (bits <= 16 or is_alpha or self._colours > 1):
            low, high = 0.0, float((1 << bits) - 1)
        else:
            low, high = _find_range(values)
            if kind == "f" and (is_alpha or (self._shown > 1 and 0 <= low <= high <= 1)):
                low, high = 0.0, 1.0
        for top in range(0, len(values), _BAND):
            part = values[top : top + _BAND]
            if kind == "u" and bits >= 8 and high == (1 << bits) - 1:
                levels[top : top + _BAND] = part >> (bits - 8)
                continue
            whole = np.nan_to_num(part.astype(np.float64), nan=low, posinf=high, neginf=low)
            scaled = (whole - low) * (255.0 / (high - low) if high > low else 0.0)
            levels[top : top + _BAND] = np.rint(scaled).clip(0, 255)


def _find_range(values: NDArray[Any]) -> tuple[float, float]:
    """Return the least and the greatest finite value; zeros if there is none."""
    low, high = np.inf, -np.inf
    for top in range(0, len(values), _BAND):
        part = values[top : top + _BAND]
        finite = np.isfinite(part)
        if finite.any():
            low, high = min(low, float(part[finite].min())), max(high, float(part[finite].max()))
    return (low, high) if low <= high else (0.0, 0.0)


def _split_bits(raw: NDArray[np.uint8], bits: int) -> NDArray[Any]:
    """Return numbers of less than 16 bits, packed in each row of bytes."""
    count = raw.shape[1] * 8 // bits
    singles = np.unpackbits(raw, axis=1)[:, : count * bits].reshape(len(raw), count, bits)
    numbers = np.zeros((len(raw), count), np.uint8 if bits < 8 else np.uint16)
    for bit in range(bits):
        numbers = numbers << 1 | singles[..., bit]
    return numbers


def _write_grey(stored: bytes, compression: int, rows: int, row_bytes: int, *, backwards: bool) -> bytes:
    """Return a grey TIFF with 8 bits a pixel from one compressed strip."""
    tags = {tiff.WIDTH: row_bytes, tiff.HEIGHT: rows, tiff.BITS: 8, tiff.COMPRESSION: compression, tiff.PHOTOMETRIC: 1}
    tags |= {_FILL_ORDER: 1 + backwards, _STRIPS: 0, tiff.SAMPLES: 1, _ROWS: rows, _STRIP_BYTES: len(stored)}
    start = 8 + 2 + 12 * len(tags) + 4
    tags[_STRIPS] = start
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + stored
