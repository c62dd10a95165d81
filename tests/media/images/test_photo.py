"""Photos of any format and mode give the RGB pixels that they show."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image as Pil

from tests.support.media.media_factory import decoded, encoded, numbered
from tests.support.media.photo_factory import save, scene, single_row


@pytest.mark.parametrize(
    ("kind", "options", "tolerance"),
    [
        ("PNG", {}, 0),
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
        ("TIFF", {"compression": "tiff_lzw"}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("JPEG", {"quality": 95}, 3),
        ("JPEG", {"quality": 95, "progressive": True}, 3),
        ("AVIF", {"quality": 95}, 3),
    ],
)
def test_formats(tmp_path: Path, kind: str, options: dict, tolerance: float) -> None:
    row = single_row(save(tmp_path, encoded(Pil.fromarray(scene()), kind, **options), "no_name_ending"))
    assert row["frame"].shape == (301, 453, 3)
    assert (row["height"], row["width"], row["media_type"]) == (301, 453, "photo")
    assert row["time_s"] is None and row["fps"] is None
    assert np.abs(row["frame"].astype(int) - scene()).mean() <= tolerance


def flat(mode: str, value: object) -> Pil.Image:
    return Pil.new(mode, (8, 8), value)


def grey16(value: int) -> Pil.Image:
    return Pil.fromarray(np.full((8, 8), value, np.uint16))


MODES = [
    ("1 bit", encoded(flat("1", 1), "PNG"), (255, 255, 255)),
    ("grey", encoded(flat("L", 100), "PNG"), (100, 100, 100)),
    ("grey JPEG", encoded(flat("L", 100), "JPEG"), (100, 100, 100)),
    ("palette", encoded(flat("RGB", (10, 200, 30)).quantize(2), "PNG"), (10, 200, 30)),
    ("palette GIF", encoded(flat("RGB", (10, 200, 30)).quantize(2), "GIF"), (10, 200, 30)),
    ("half transparent grey", encoded(flat("LA", (0, 128)), "PNG"), (127, 127, 127)),
    ("transparent", encoded(flat("RGBA", (255, 0, 0, 0)), "PNG"), (255, 255, 255)),
    ("half transparent red", encoded(flat("RGBA", (255, 0, 0, 128)), "WEBP", lossless=True), (255, 127, 127)),
    ("opaque", encoded(flat("RGBA", (1, 2, 3, 255)), "TIFF"), (1, 2, 3)),
    ("colour key", encoded(flat("RGB", (9, 9, 9)), "PNG", transparency=(9, 9, 9)), (255, 255, 255)),
    ("16 bit grey PNG", encoded(grey16(0x80FF), "PNG"), (128, 128, 128)),
    ("16 bit grey TIFF", encoded(grey16(0xFFFF), "TIFF"), (255, 255, 255)),
    (
        "16 bit colour",
        cv2.imencode(".png", np.full((8, 8, 3), (0x10FF, 0x20FF, 0x30FF), np.uint16))[1].tobytes(),
        (48, 32, 16),
    ),
    ("CMYK TIFF", encoded(flat("CMYK", (0, 255, 255, 0)), "TIFF"), (255, 0, 0)),
    ("CMYK JPEG", encoded(flat("CMYK", (255, 0, 255, 0)), "JPEG"), (0, 255, 0)),
    ("YCbCr", encoded(flat("RGB", (0, 0, 255)).convert("YCbCr"), "TIFF"), (0, 0, 254)),
]


@pytest.mark.parametrize(("data", "colour"), [case[1:] for case in MODES], ids=[case[0] for case in MODES])
def test_modes_become_rgb(tmp_path: Path, data: bytes, colour: tuple[int, int, int]) -> None:
    frame = single_row(save(tmp_path, data))["frame"]
    assert frame.shape == (8, 8, 3)
    assert np.abs(frame.astype(int) - np.array(colour)).max() <= 1


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_grey_without_a_white_is_stretched(tmp_path: Path, dtype: type) -> None:
    ramp = np.linspace(-1000, 3000, 64).reshape(8, 8).astype(dtype)
    if dtype is np.float32:
        ramp[3, 3] = np.nan
    frame = single_row(save(tmp_path, encoded(Pil.fromarray(ramp), "TIFF")))["frame"]
    assert (frame[0, 0].tolist(), frame[-1, -1].tolist()) == ([0] * 3, [255] * 3)
    assert np.all(np.diff(frame[:, 0, 0].astype(int)) > 0)


def test_only_the_first_page_of_a_tiff_counts(tmp_path: Path) -> None:
    pages = [Pil.fromarray(numbered(i)) for i in (3, 4)]
    row = single_row(save(tmp_path, encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])))
    assert np.array_equal(row["frame"], numbered(3)) and row["media_type"] == "photo"


def test_many_photos_come_in_order_of_the_unit(tmp_path: Path) -> None:
    for index in range(20):
        save(tmp_path, encoded(Pil.fromarray(numbered(index)), "PNG"), f"{index:02}")
    rows, _ = decoded(tmp_path)
    assert [row["frame"][-1, -1, 0] for row in rows] == list(range(20))
    others, _ = decoded(tmp_path)
    assert all(np.array_equal(a["frame"], b["frame"]) for a, b in zip(rows, others, strict=True))
