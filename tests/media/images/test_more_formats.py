"""Photos of phones, scanners and printers: HEIC, JPEG 2000, Targa, PNM, CMYK in TIFF, bit fields in BMP."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pil

from framekiln.contract.errors import MediaError
from framekiln.media.file_types import detect_kind
from tests.support.media.media_factory import decoded, encoded
from tests.support.media.photo_factory import exif, save, scene, single_row

LOSSLESS: dict[str, tuple[str, dict[str, Any]]] = {
    "jp2": ("JPEG2000", {}),
    "j2k": ("JPEG2000", {"no_jp2": True}),
    "tga": ("TGA", {}),
    "tga-rle": ("TGA", {"compression": "tga_rle"}),
    "ppm": ("PPM", {}),
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_formats_give_their_pixels(tmp_path: Path, name: str) -> None:
    kind, options = LOSSLESS[name]
    row = single_row(save(tmp_path, encoded(Pil.fromarray(scene()), kind, **options)))
    assert np.array_equal(row["frame"], scene())


@pytest.mark.parametrize("mode", ["L", "P", "RGBA"])
def test_targa_of_other_modes(tmp_path: Path, mode: str) -> None:
    image = Pil.fromarray(scene()).convert(mode)
    row = single_row(save(tmp_path, encoded(image, "TGA")))
    assert np.array_equal(row["frame"], np.asarray(image.convert("RGB")))


def test_a_fourth_byte_of_targa_is_alpha_where_the_header_says_so(tmp_path: Path) -> None:
    header = bytes([0, 0, 2]) + bytes(5) + struct.pack("<HHHHBB", 0, 0, 1, 1, 32, 0x20)
    assert single_row(save(tmp_path, header + bytes([60, 90, 200, 0])))["frame"].tolist() == [[[200, 90, 60]]]
    header = header[:-1] + b"\x28"
    assert single_row(save(tmp_path, header + bytes([60, 90, 200, 0])))["frame"].tolist() == [[[255, 255, 255]]]


@pytest.mark.parametrize("turn", [1, 3, 6, 8])
def test_heic_is_upright(tmp_path: Path, turn: int) -> None:
    image = Pil.fromarray(scene(64, 96))
    shown = single_row(save(tmp_path, encoded(image, "HEIF", quality=95, exif=exif(turn))))["frame"]
    expected = single_row(save(tmp_path, encoded(image, "PNG", exif=exif(turn))))["frame"]
    assert shown.shape == expected.shape
    assert np.abs(shown.astype(int) - expected).mean() < 12, "chroma of half the size"


def bmp(masks: tuple[int, int, int], bits: int, image: np.ndarray, top_down: bool = False) -> bytes:
    """Return a BMP with bit fields; each mask is a run of bits."""
    values = np.zeros(image.shape[:2], np.uint32)
    for channel, mask in enumerate(masks):
        low = (mask & -mask).bit_length() - 1
        values |= (np.rint(image[:, :, channel] / 255.0 * (mask >> low)).astype(np.uint32)) << low
    rows = values if top_down else values[::-1]
    padded = np.pad(rows.astype(f"<u{bits // 8}"), ((0, 0), (0, image.shape[1] % 2 if bits == 16 else 0)))
    height, width = image.shape[:2]
    head = struct.pack("<IiiHHIIiiIIIII", 40, width, -height if top_down else height, 1, bits, 3, 0, 0, 0, 0, 0, *masks)
    return b"BM" + struct.pack("<IHHI", 66 + padded.nbytes, 0, 0, 66) + head + padded.tobytes()


@pytest.mark.parametrize("top_down", [False, True])
def test_bit_fields_of_16_bits(tmp_path: Path, top_down: bool) -> None:
    image = scene(30, 41)
    row = single_row(save(tmp_path, bmp((0xF800, 0x7E0, 0x1F), 16, image, top_down)))
    assert np.abs(row["frame"].astype(int) - image).max() <= 8


@pytest.mark.parametrize("extra", [(0,), (1,), (2,)])
def test_cmyk_with_another_channel(tmp_path: Path, extra: tuple[int]) -> None:
    ink = np.concatenate([255 - scene(), np.zeros((*scene().shape[:2], 2), np.uint8)], axis=2)
    tags = [(256, ink.shape[1]), (257, ink.shape[0]), (259, 1), (262, 5), (273, 200), (277, 5), (279, ink.nbytes)]
    entries = [struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags]
    entries.insert(2, struct.pack("<HHII", 258, 3, 5, 180))
    entries.append(struct.pack("<HHIHH", 338, 3, 1, extra[0], 0))
    head = b"II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + b"".join(entries) + bytes(4)
    data = head.ljust(180, b"\0") + struct.pack("<5H", *[8] * 5) + bytes(10) + ink.tobytes()
    assert np.array_equal(single_row(save(tmp_path, data))["frame"], scene())


@pytest.mark.parametrize("data", [bytes(range(256)), bytes(64), b"\0\0\2\0\1\0" + bytes(40), b"\0\1\2" * 20])
def test_other_bytes_are_no_targa(data: bytes) -> None:
    with pytest.raises(MediaError):
        detect_kind(data)


@pytest.mark.parametrize("kind", ["TGA", "JPEG2000", "HEIF", "PPM", "PNG"])
def test_half_a_file_is_damage(tmp_path: Path, kind: str) -> None:
    data = encoded(Pil.fromarray(scene()), kind)
    rows, failures = decoded(save(tmp_path, data[: len(data) // 2]))
    assert [failure.kind for failure in failures] in (["truncated"], ["corrupt"]) and len(rows) <= 1
