"""Photos for tests, and the single row or failure of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image as Pil

from tests.support.media.media_factory import decoded


def scene(height: int = 301, width: int = 453) -> np.ndarray:
    """Return smooth shapes and edges in colour; the sides are no multiples of 2."""
    y, x = np.mgrid[0:height, 0:width]
    image = np.stack([x * 255 / width, y * 255 / height, 127 + 120 * np.sin(x / 20) * np.cos(y / 15)], 2)
    image[height // 3 : height // 2, width // 4 : width // 3] = (250, 20, 30)
    return image.astype(np.uint8)


def save(folder: Path, data: bytes, name: str = "file") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def single_row(path: Path, columns: tuple[str, ...] = ("frame",), **config: object) -> dict:
    rows, failures = decoded(path, columns, **config)
    assert (len(rows), failures) == (1, [])
    return rows[0]


def single_failure(path: Path, **config: object) -> tuple[str, str]:
    rows, failures = decoded(path, **config)
    assert (rows, len(failures)) == ([], 1)
    assert (failures[0].frame_index, failures[0].step) == (None, "decode")
    return failures[0].kind, failures[0].message


def exif(orientation: int) -> bytes:
    tags = Pil.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()
