"""Bytes of photos that no library here writes."""

from __future__ import annotations

import struct
import zlib
from random import Random

import numpy as np


def bmp(bits: int, compression: int, body: bytes, size: tuple[int, int], palette: bytes = b"") -> bytes:
    """Return a BMP with this body after its headers."""
    height, width = size
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(body), 0, 0, 0, 0)
    start = 54 + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(body), 0, 0, start) + head + palette + body


def tiff(ink: np.ndarray, order: str, *, deflate: bool, differences: bool, rows: int, turn: int = 1) -> bytes:
    """Return a TIFF of 16-bit inks (h w channels) in strips of some rows; only compressed ones may be differences."""
    height, width, samples = ink.shape
    values = np.diff(ink, axis=1, prepend=np.zeros_like(ink[:, :1])) if differences and deflate else ink
    strips = [values[start : start + rows].astype(f"{order}u2").tobytes() for start in range(0, height, rows)]
    strips = [zlib.compress(strip) for strip in strips] if deflate else strips
    body = 300 + 8 * len(strips)
    offsets = [body + sum(map(len, strips[:i])) for i in range(len(strips))]
    tags: list[tuple[int, str, list[int]]] = [(256, "I", [width]), (257, "I", [height]), (258, "H", [16] * samples)]
    tags += [(259, "H", [8 if deflate else 1]), (262, "H", [5]), (273, "I", offsets), (274, "H", [turn])]
    tags += [(277, "H", [samples]), (278, "I", [rows]), (279, "I", [len(strip) for strip in strips])]
    tags += [(317, "H", [1 + differences]), (338, "H", [1] + [0] * (samples - 5))]
    entries, more = b"", b""
    for tag, letter, numbers in tags:
        value = struct.pack(f"{order}{len(numbers)}{letter}", *numbers)
        if len(value) > 4:
            place, more = struct.pack(f"{order}I", 200 + len(more)), more + value
        else:
            place = value.ljust(4, b"\0")
        entries += struct.pack(f"{order}HHI", tag, {"H": 3, "I": 4}[letter], len(numbers)) + place
    magic = b"II*\0" if order == "<" else b"MM\0*"
    head = magic + struct.pack(f"{order}IH", 8, len(tags)) + entries + bytes(4)
    return (head.ljust(200, b"\0") + more).ljust(body, b"\0") + b"".join(strips)


def tagged_tiff(rng: Random) -> bytes:
    """Return a whole TIFF with some combination of tags, known to readers or not, and pixels enough for it."""
    height, width, samples = rng.randrange(1, 40), rng.randrange(1, 40), rng.choice((1, 1, 2, 3, 3, 4, 5, 6))
    bits, order = rng.choice((1, 2, 4, 8, 8, 12, 16, 16, 24, 32, 64)), rng.choice("<>")
    body = rng.randbytes(height * -(-width * samples * bits // 8) + 8 * samples)
    compression = rng.choice((1, 1, 8, 32773, 5))
    body = zlib.compress(body) if compression == 8 else body
    tags: dict[int, tuple[str, list[int]]] = {
        254: ("I", [rng.choice((0, 0, 1, 2, 4))]),
        256: ("I", [width]),
        257: ("I", [height]),
        258: ("H", [bits] * rng.choice((1, samples))),
        259: ("H", [compression]),
        262: ("H", [rng.choice((0, 1, 1, 2, 2, 3, 4, 5, 6, 8, 32803, 34892))]),
        274: ("H", [rng.randrange(10)]),
        277: ("H", [samples]),
        278: ("I", [rng.choice((height, 1, 7))]),
        279: ("I", [len(body)]),
        284: ("H", [rng.choice((1, 1, 2, 3))]),
        317: ("H", [rng.choice((1, 1, 2, 3))]),
        338: ("H", [rng.randrange(3)] * max(1, samples - 3)),
        339: ("H", [rng.choice((1, 1, 2, 3, 4))] * samples),
    }
    for tag in (254, 274, 277, 278, 284, 317, 338, 339):
        if rng.random() < 0.4:
            del tags[tag]
    start = 8 + 2 + 12 * (len(tags) + 1) + 4
    tags[273] = ("I", [start])
    long = b"".join(struct.pack(f"{order}{len(values)}{kind}", *values) for kind, values in tags.values())
    tags[273] = ("I", [start + len(long)])
    entries, extra = b"", b""
    for tag, (kind, values) in sorted(tags.items()):
        data = struct.pack(f"{order}{len(values)}{kind}", *values)
        if len(data) > 4:
            data, extra = struct.pack(f"{order}I", start + len(extra)), extra + data
        entries += struct.pack(f"{order}HHI", tag, 4 if kind == "I" else 3, len(values)) + data.ljust(4, b"\0")
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 8) + struct.pack(f"{order}H", len(tags))
    return head + entries + bytes(4) + extra.ljust(len(long), b"\0") + body
