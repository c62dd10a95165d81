"""Pages of a TIFF by their tags (TIFF 6.0, BigTIFF): the photo among them, and unsupported variants.

An unsupported variant is no damage: its error names it, and how to convert it.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framekiln.contract.errors import MediaError, Reason

WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, ORIENTATION = 256, 257, 258, 259, 262, 274
SUBFILE_TYPE, SUB_IFDS, SAMPLES, PLANES, DNG_VERSION, FORMAT = 254, 330, 277, 284, 50706, 339
PALETTE, INK_SET, EXTRA = 320, 332, 338
INDEXED, INK, YCBCR, _OF_SENSORS = 3, 5, 6, (32803, 34892)  # values of PHOTOMETRIC; the last: pixels before development
_APART_ALPHA = 2  # value of EXTRA
UNSIGNED, SIGNED, FLOAT, UNKNOWN, APART = 1, 2, 3, 4, 2  # values of FORMAT and PLANES
_FORMATS = {UNSIGNED: "unsigned", SIGNED: "signed", FLOAT: "floating-point"}
_TYPES = {
    1: "u1",
    2: "u1",
    3: "u2",
    4: "u4",
    6: "i1",
    7: "u1",
    8: "i2",
    9: "i4",
    13: "u4",
    16: "u8",
    17: "i8",
    18: "u8",
}
_REDUCED_OR_MASK, _MOST_PAGES = 1 | 4, 100
OLD_JPEG, _STATES_LIGHT = 6, (2, 3, 4, 7, 32771)  # the last: CCITT, whose 0 is white, and JPEG
_BY_PILLOW = (1, 2, 3, 4, 5, OLD_JPEG, 7, 8, 32771, 32773, 32946, 34925, 50000)
"""Ways of compression that the libtiff of Pillow's wheel has: none, CCITT, LZW, JPEG, Deflate, PackBits, LZMA, Zstd."""


@dataclass(frozen=True)
class Page:
    """The tags of one page that are whole numbers or bytes."""

    order: str  # "<" or ">"
    is_big: bool  # BigTIFF
    place: int  # position of the tags, in bytes
    tags: dict[int, NDArray[Any]]
    following: int  # place of the next page; 0 after the last one

    def first(self, tag: int, default: int) -> int:
        return int(self.tags[tag][0]) if len(self.tags.get(tag, ())) else default

    @property
    def height(self) -> int:
        return self.first(HEIGHT, 0)

    @property
    def width(self) -> int:
        return self.first(WIDTH, 0)

    @property
    def is_part(self) -> bool:
        """True for a thumbnail or a mask; also for a page without pixels."""
        return bool(self.first(SUBFILE_TYPE, 0) & _REDUCED_OR_MASK) or min(self.height, self.width) <= 0

    @property
    def bits(self) -> int:
        """Bits of a channel; 0 where channels differ."""
        values = {int(value) for value in self.tags.get(BITS, (1,))}
        return values.pop() if len(values) == 1 else 0

    @property
    def numbers(self) -> int:
        """The kind of numbers; numbers of unknown kind are unsigned (TIFF 6.0, section 19)."""
        kind = self.first(FORMAT, UNSIGNED)
        return UNSIGNED if kind == UNKNOWN else kind

    @property
    def has_narrow_palette(self) -> bool:
        """True if a palette has 8 bits in the lower half of 16."""
        return self.first(PHOTOMETRIC, 1) == INDEXED and self.tags.get(PALETTE, np.array([256])).max() < 256

    @property
    def unsupported(self) -> MediaError:
        samples, apart = self.first(SAMPLES, 1), self.first(PLANES, 1) == APART
        kind = _FORMATS.get(self.numbers, "other")
        what = f"a TIFF with {samples} {'channel' if samples == 1 else 'channels'} of {self.first(BITS, 1)} {kind} bits"
        what += f"{', each in a plane of its own' * apart}, photometric {self.first(PHOTOMETRIC, 1)}"
        what += f" and compression {self.first(COMPRESSION, 1)}"
        return MediaError(Reason.UNSUPPORTED, f"{what}, which is not read; convert it to PNG")

    @property
    def is_of_pillow(self) -> bool:
        """True if Pillow reads the right pixels: whole numbers up to 8 bits, or 16-bit colours in one plane.

        It reads planes only for colours, and no big-endian BigTIFF.

        Raises MediaError: UNSUPPORTED for a compression that neither Pillow nor this package reads, and for other inks.
        """
        other_ink = self.first(PHOTOMETRIC, 1) == INK and self.first(INK_SET, 1) != 1
        if self.first(COMPRESSION, 1) not in _BY_PILLOW or other_ink:
            raise self.unsupported
        samples, bits = self.first(SAMPLES, 1), self.bits
        apart = self.first(PLANES, 1) == APART and samples > 1
        inks_or_alpha = self.first(PHOTOMETRIC, 1) == INK or self.first(EXTRA, 0) == _APART_ALPHA
        by_planes = not apart or samples == 3 or (samples == 4 and inks_or_alpha)
        known = samples <= (4 if self.first(PHOTOMETRIC, 1) > 1 or PHOTOMETRIC not in self.tags else 2)
        plain = (bits == 8 and known and by_planes) or (bits in (1, 2, 4) and samples == 1)
        plain |= bits == 16 and samples in (3, 4) and known and not apart
        plain &= self.first(FORMAT, UNSIGNED) == UNSIGNED and not self.has_narrow_palette
        plain &= PHOTOMETRIC in self.tags or self.first(COMPRESSION, 1) in _STATES_LIGHT  # Pillow takes 0 for white
        return plain and not (self.is_big and self.order == ">")


def find_photo(data: bytes) -> tuple[bytes, Page | None]:
    """Return the file with the photo as its first page, and that page; None if the tags are damaged.

    Thumbnails and masks on other pages are no photos, unless there is nothing else.
    Raises MediaError: UNSUPPORTED for a camera's raw file.
    """
    found = list(islice(_read_pages(data), 1))
    if not found:
        return data, None
    page = found[0]
    is_part, under = page.is_part, list(_read_under(data, page))
    of_sensors = any(one.first(PHOTOMETRIC, 1) in _OF_SENSORS for one in under)
    if is_part and not of_sensors:
        others = chain(under, islice(_read_pages(data), _MOST_PAGES))
        page = next((item for item in others if not item.is_part), page)
        at, kind = (8, "Q") if page.is_big else (4, "I")
        place = struct.pack(f"{page.order}{kind}", page.place)
        data = data[:at] + place + data[at + len(place) :]
    if DNG_VERSION in found[0].tags or of_sensors or (page.is_part and SUB_IFDS in page.tags):
        raise MediaError(Reason.UNSUPPORTED, "a camera raw file (DNG, NEF, ARW): export it as JPEG or TIFF")
    return data, page


def _read_under(data: bytes, page: Page) -> Iterator[Page]:
    """Yield the pages that lie under a page: a camera's raw pixels, the photo of a thumbnail, or smaller copies."""
    for place in page.tags.get(SUB_IFDS, ())[:_MOST_PAGES]:
        with suppress(struct.error, ValueError):
            yield _read_page(data, page.order, int(place), is_big=page.is_big)


def _read_pages(data: bytes) -> Iterator[Page]:
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    try:
        is_big = struct.unpack_from(f"{order}H", data, 2)[0] == 43
        (place,) = struct.unpack_from(f"{order}{'8xQ' if is_big else '4xI'}", data)
        while place:
            page = _read_page(data, str(order), place, is_big=is_big)
            if page.width <= 0 or page.height <= 0:
                return
            yield page
            place = page.following
    except (struct.error, ValueError):
        return


def _read_page(data: bytes, order: str, place: int, *, is_big: bool) -> Page:
    head, entry, offset = ("Q", "HHQ", "Q") if is_big else ("H", "HHI", "I")
    (count,) = struct.unpack_from(f"{order}{head}", data, place)
    at, wide = place + struct.calcsize(f"{order}{head}"), struct.calcsize(f"{order}{offset}")
    step, tags = struct.calcsize(f"{order}{entry}") + wide, dict[int, NDArray[Any]]()
    if count > len(data) // step:
        raise ValueError("more tags than bytes")
    for start in range(at, at + count * step, step):
        tag, kind, number = struct.unpack_from(f"{order}{entry}", data, start)
        values = np.dtype(f"{order}{_TYPES.get(kind, 'u1')}")
        inside = number * values.itemsize <= wide
        (far,) = struct.unpack_from(f"{order}{offset}", data, start + step - wide)
        with suppress(ValueError, OverflowError):  # a damaged tag, or one past the end
            if kind in _TYPES and number:
                tags.setdefault(tag, np.frombuffer(data, values, number, start + step - wide if inside else far))
    (following,) = struct.unpack_from(f"{order}{offset}", data, at + count * step)
    return Page(order, is_big, place, tags, following)
