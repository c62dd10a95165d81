"""ICC profiles that no library here writes (ICC.1:2010): of primaries and a power, of greys, and of inks."""

from __future__ import annotations

import struct

import numpy as np

D50 = np.array([0.9642, 1.0, 0.8249])
# Red, green and blue, then white, as x y: SMPTE EG 432-1, Adobe RGB (1998), ROMM RGB (ISO 22028-2)
DISPLAY_P3 = ((0.680, 0.320), (0.265, 0.690), (0.150, 0.060), (0.3127, 0.3290))
ADOBE_RGB = ((0.640, 0.330), (0.210, 0.710), (0.150, 0.060), (0.3127, 0.3290))
PRO_PHOTO = ((0.7347, 0.2653), (0.1596, 0.8404), (0.0366, 0.0001), (0.3457, 0.3585))
BT709 = ((0.640, 0.330), (0.300, 0.600), (0.150, 0.060), (0.3127, 0.3290))
_BRADFORD = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])


def to_xyz(primaries: tuple[tuple[float, float], ...]) -> np.ndarray:
    """Return the matrix from linear light of these primaries to XYZ under D50."""
    *colours, white = (np.array([x / y, 1.0, (1 - x - y) / y]) for x, y in primaries)
    matrix = np.stack(colours, axis=1)
    matrix = matrix * np.linalg.solve(matrix, white)
    adapted = np.linalg.inv(_BRADFORD) @ np.diag((_BRADFORD @ D50) / (_BRADFORD @ white)) @ _BRADFORD
    return adapted @ matrix


def expected(rgb: np.ndarray, primaries: tuple[tuple[float, float], ...], power: float) -> np.ndarray:
    """Return 8-bit colours (n 3) of these primaries and power in sRGB, 0 to 255."""
    light = (rgb / 255.0) ** power @ (np.linalg.inv(to_xyz(BT709)) @ to_xyz(primaries)).T
    light = light.clip(0, 1)
    return 255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def rgb_profile(primaries: tuple[tuple[float, float], ...], power: float) -> bytes:
    """Return a profile of a display."""
    curve = b"curv" + bytes(4) + struct.pack(">IH", 1, round(power * 256)) + bytes(2)
    axes = {name: _xyz(column) for name, column in zip((b"rXYZ", b"gXYZ", b"bXYZ"), to_xyz(primaries).T, strict=True)}
    return _profile(b"mntr", b"RGB ", b"XYZ ", axes | dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve))


def grey_profile(power: float) -> bytes:
    """Return a profile of greys."""
    curve = b"curv" + bytes(4) + struct.pack(">IH", 1, round(power * 256)) + bytes(2)
    return _profile(b"mntr", b"GRAY", b"XYZ ", {b"kTRC": curve})


def ink_profile(cyan: tuple[int, int, int]) -> bytes:
    """Return a profile of a printer in 8 bits, whose cyan is this colour in L*a*b*; all with other inks is black."""
    paper = (100, 0, 0)
    corners = [paper if not inks else cyan if inks == 8 else (0, 0, 0) for inks in range(16)]
    table = b"".join(bytes((round(lightness * 2.55), a + 128, b + 128)) for lightness, a, b in corners)
    ramp = bytes(range(256))
    identity = struct.pack(">9i", *(65536 * (place % 4 == 0) for place in range(9)))
    lut = b"mft1" + bytes(4) + bytes((4, 3, 2, 0)) + identity + ramp * 4 + table + ramp * 3
    return _profile(b"prtr", b"CMYK", b"Lab ", {b"A2B0": lut, b"A2B1": lut})


def _xyz(values: np.ndarray) -> bytes:
    return b"XYZ " + bytes(4) + struct.pack(">3i", *(round(65536 * value) for value in values))


def _profile(device: bytes, channels: bytes, connection: bytes, tags: dict[bytes, bytes]) -> bytes:
    name = b"made" + bytes(1)
    tags = {b"desc": b"desc" + bytes(4) + struct.pack(">I", len(name)) + name + bytes(78), b"wtpt": _xyz(D50)} | tags
    tags = {tag: value + bytes(-len(value) % 4) for tag, value in tags.items()}
    at, entries, body = 128 + 4 + 12 * len(tags), b"", b""
    for tag, value in tags.items():
        entries += tag + struct.pack(">II", at + len(body), len(value))
        body += value
    head = bytes(4) + struct.pack(">I", 0x02100000) + device + channels + connection + bytes(12) + b"acsp" + bytes(28)
    head += struct.pack(">3i", *(round(65536 * value) for value in D50)) + bytes(48)
    data = head + struct.pack(">I", len(tags)) + entries + body
    return struct.pack(">I", 4 + len(data)) + data
