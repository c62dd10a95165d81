"""Damaged and misnamed files, made from photos that installed packages bring and a film made from them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image as Pil

from tests.support.media.bombs import chunk
from tests.support.media.media_factory import encoded, film
from tests.support.media.photos import photo, photo_file, take


def write_damaged(folder: Path) -> Path:
    """Write one file of each kind of damage, named by it."""
    jpeg, png = photo_file("china.jpg").read_bytes(), encoded(Pil.fromarray(photo("flower.jpg")), "PNG")
    whole = film(
        folder / "whole.mp4",
        take("china.jpg", 60, 144, 180),
        codec="libx264",
        pix_fmt="yuv420p",
        container={"movflags": "+faststart"},
    )
    mp4 = whole.read_bytes()
    whole.unlink()
    middle = len(png) // 2
    files = {
        "badcrc.png": png[:middle] + bytes([png[middle] ^ 255]) + png[middle + 1 :],
        "bomb_header.png": _grey_png(60_000, b"\x00"),
        "bomb_real.png": _grey_png(20_000, bytes(20_000 * 20_001)),
        "html.mp4": b"<html><body>404 Not Found</body></html>",
        "mp4_cut_head.mp4": mp4[: len(mp4) // 3],
        "mp4_cut_tail.mp4": mp4[len(mp4) // 3 : 2 * len(mp4) // 3],
        "mp4_noise.mp4": mp4[:32] + np.random.default_rng(0).bytes(50_000),
        "one.png": png[:1],
        "png_named.jpg": png,
        "text.jpg": b"no photo\n" * 40,
        "trunc_2.jpg": jpeg[: len(jpeg) // 50],
        "trunc_50.jpg": jpeg[: len(jpeg) // 2],
        "trunc_50.png": png[:middle],
        "zero.jpg": b"",
        "zero.mp4": b"",
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def _grey_png(side: int, lines: bytes) -> bytes:
    """A PNG that claims a square of 8-bit grey, and holds these lines."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(lines, 1)) + chunk(b"IEND", b"")
