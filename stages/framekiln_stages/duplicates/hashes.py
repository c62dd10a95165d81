"""Perceptual hashes of pictures and of windows in them: equal for one picture, close for a changed copy.

A hash holds the signs of 128 low frequencies of a picture's cosine transform. Brightness, contrast, colour, size and
compression change few of them. Mirroring flips the signs at odd horizontal frequencies, and turning exchanges both
axes. So these hashes are known without pixels. A crop has the hash of the same window in the whole picture.

Shapes: n pictures, w windows, luma uint8 h w; a hash is 16 bytes, a thumbnail 32 by 32 uint8.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

SIDE = 32  # px, side of a reduced window: twice the highest kept frequency
BITS = 128
BASE = 160  # px of the picture that windows are cut from: they begin at whole pixels
FLAT = 3.0  # codes: with a smaller deviation, signs are noise
_INSET = 0.1  # share of a side: the largest crop that is found, at any place
_STARTS = (0.0, _INSET / 2, _INSET)
_INNER = [(start, start + 1 - _INSET) for start in _STARTS]
# Top, bottom, left, right as fractions: the whole, and windows of 0.9 of its height, its width, or both.
WINDOWS = [
    ((0.0, 1.0), (0.0, 1.0)),
    *[(rows, columns) for rows in _INNER for columns in _INNER],
    *[((0.0, 1.0), columns) for columns in _INNER],
    *[(rows, (0.0, 1.0)) for rows in _INNER],
]
_FREQUENCIES = sorted(
    ((v, u) for v in range(16) for u in range(16) if v or u),
    key=lambda at: (at[0] + at[1], at[0] ** 2 + at[1] ** 2, at),
)[:BITS]
# Shuffled, so that any 20 neighbouring bits hold low and high frequencies: a search compares such bits first.
_ORDER = np.random.default_rng(0).permutation(BITS)
_ROWS, _COLUMNS = np.array(_FREQUENCIES)[_ORDER].T
_INDEX = {at: bit for bit, at in enumerate(zip(_ROWS.tolist(), _COLUMNS.tolist(), strict=True))}
_EXCHANGED = [_INDEX.get((u, v), bit) for (v, u), bit in _INDEX.items()]  # one of 128 has no partner
VIEWS = ("same", "mirrored", "turned", "upside down")
"""Views in which a whole picture is searched. turned: by 90 degrees anticlockwise, for one picture of a pair."""
_OPPOSITE = (np.zeros(BITS, np.int64), _COLUMNS, _ROWS, _ROWS + _COLUMNS)  # in each view, for odd frequencies


def turn_hashes(hashes: Bytes, view: int) -> Bytes:
    """Return the hashes (n 16) of pictures in one of `VIEWS`."""
    bits = np.unpackbits(hashes, axis=1)
    if VIEWS[view] == "turned":
        bits = bits[:, _EXCHANGED]
    return np.packbits(bits ^ (_OPPOSITE[view] % 2 == 1), axis=1)


def turn_pictures(pictures: Bytes, view: int) -> Bytes:
    """Return pictures (n h w) in one of `VIEWS`."""
    if VIEWS[view] == "mirrored":
        return pictures[:, :, ::-1]
    return np.rot90(pictures, max(0, view - 1), axes=(1, 2))


def thumbnail(luma: Bytes) -> Bytes:
    """Return the picture at 32 by 32 px."""
    return cv2.resize(luma, (SIDE, SIDE), interpolation=cv2.INTER_AREA)


def is_flat(luma: Bytes) -> bool:
    """Return whether the picture has too little detail for a hash."""
    return float(cv2.meanStdDev(luma)[1][0, 0]) < FLAT


def hash_windows(luma: Bytes, count: int) -> Bytes:
    """Return the hashes (count 16) of the first windows; the first one is the whole picture."""
    base = cv2.resize(luma, (BASE, BASE), interpolation=cv2.INTER_AREA)
    found = np.empty((count, BITS), np.bool_)
    for number, window in enumerate(WINDOWS[:count]):
        rows, columns = (slice(*(round(at * BASE) for at in ends)) for ends in window)
        found[number] = cv2.dct(thumbnail(base[rows, columns]).astype(np.float32))[_ROWS, _COLUMNS] > 0
    return np.packbits(found, axis=1)
