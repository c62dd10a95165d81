"""Photos that Pillow has no name for, or reads in another light: rare BMP, TIFF and PNM."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pil

from tests.media.images.test_more_formats import bmp as fields
from tests.support.media.media_factory import decoded, encoded
from tests.support.media.photo_factory import save, scene, single_failure, single_row
from tests.support.media.rare_photos import bmp, tiff


@pytest.mark.parametrize(
    "data",
    [
        fields((0xF00, 0xF0, 0xF), 16, scene()),
        fields((0xFF, 0xFF00, 0xFF0000), 32, scene()),
        bmp(2, 0, bytes(4 * 8), (8, 8), bytes(16)),
        bmp(0, 4, encoded(Pil.fromarray(scene()), "JPEG"), scene().shape[:2]),
    ],
    ids=["narrow fields", "fields in another order", "two bits", "around a JPEG"],
)
def test_rare_bmp_are_named(tmp_path: Path, data: bytes) -> None:
    assert single_failure(save(tmp_path, data))[0] == "unsupported"


def inks(samples: int) -> np.ndarray:
    """Return the scene as cyan, magenta and yellow without black, with alpha or spot colours of any value."""
    plain = np.concatenate([255 - scene(), np.zeros((*scene().shape[:2], 1), np.uint8)], axis=2).astype(np.uint16)
    noise = np.random.default_rng(samples).integers(0, 65536, (*scene().shape[:2], samples - 4), dtype=np.uint16)
    low = np.random.default_rng(0).integers(0, 256, plain.shape, dtype=np.uint16)
    return np.concatenate([plain * 256 + low, noise], axis=2)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("differences", [False, True])
def test_cmyk_with_alpha_of_sixteen_bits(tmp_path: Path, order: str, deflate: bool, differences: bool) -> None:
    data = tiff(inks(5), order, deflate=deflate, differences=differences, rows=100)
    assert np.array_equal(single_row(save(tmp_path, data))["frame"], scene())


def test_two_further_channels_and_a_turned_photo(tmp_path: Path) -> None:
    data = tiff(inks(6), "<", deflate=True, differences=False, rows=301, turn=6)
    assert np.array_equal(single_row(save(tmp_path, data))["frame"], np.rot90(scene(), -1))


def test_a_large_photo_is_limited_by_its_own_pixels(tmp_path: Path) -> None:
    data = tiff(inks(5), "<", deflate=True, differences=False, rows=301)
    count = scene().shape[0] * scene().shape[1]
    assert single_failure(save(tmp_path, data), max_pixels=count - 1)[0] == "too_large"
    assert single_row(save(tmp_path, data), max_pixels=count)["frame"].shape == scene().shape


def test_a_cut_tiff_that_is_compressed_is_a_line(tmp_path: Path) -> None:
    data = tiff(inks(5), "<", deflate=True, differences=False, rows=301)
    assert single_failure(save(tmp_path, data[: len(data) // 2]))[0] in ("truncated", "corrupt")


# More than 8 bits, and parts


def grey() -> np.ndarray:
    """Return a third of the scene's red, so that black to white would be another photo."""
    return scene(40, 60)[:, :, 0] // 3


@pytest.mark.parametrize(
    "data",
    [
        b"P5 60 40 65535\n" + (grey().astype(">u2") * 257).tobytes(),
        b"P5 60 40 4095\n" + np.rint(grey() * (4095 / 255)).astype(">u2").tobytes(),
        b"P2\n60 40\n65535\n" + b" ".join(b"%d" % (int(value) * 257) for value in grey().ravel()) + b"\n\0",
    ],
    ids=["16 bits", "12 bits", "in letters"],
)
def test_grey_of_many_levels_keeps_its_light(tmp_path: Path, data: bytes) -> None:
    shown = single_row(save(tmp_path, data))["frame"]
    assert np.abs(shown.astype(int) - grey()[:, :, None]).max() <= 1


def twelve_bits(values: np.ndarray) -> bytes:
    """Return a grey TIFF of 12 bits a pixel, two pixels in three bytes."""
    pairs = values.reshape(-1, 2).astype(np.uint16)
    body = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], 1)
    height, width = values.shape
    tags = {256: width, 257: height, 258: 12, 259: 1, 262: 1, 273: 200, 277: 1, 278: height, 279: body.size}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    head = b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4)
    return head.ljust(200, b"\0") + body.astype(np.uint8).tobytes()


def test_tiff_of_twelve_bits_is_not_dark(tmp_path: Path) -> None:
    shown = single_row(save(tmp_path, twelve_bits(grey().astype(np.uint16) << 4)))["frame"]
    assert np.array_equal(shown, np.repeat(grey()[:, :, None], 3, axis=2))


PLAIN = {
    "inks": tiff(inks(5), "<", deflate=False, differences=False, rows=301),
    "16 bits a channel": b"P6 453 301 65535\n" + (scene().astype(">u2") * 257).tobytes(),
    "100 levels": b"P6 453 301 100\n" + (scene() // 3).tobytes(),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_truncated_one_is_a_line_and_a_row_of_what_it_shows(tmp_path: Path, name: str) -> None:
    data = PLAIN[name]
    whole = single_row(save(tmp_path, data))["frame"]
    path = save(tmp_path, data[: len(data) * 6 // 10])
    rows, failures = decoded(path)
    assert [(failure.kind, failure.frame_index) for failure in failures] == [("truncated", 0)]
    assert (np.abs(rows[0]["frame"].astype(int) - whole).max(axis=2) <= 1).mean() > 0.5


@pytest.mark.parametrize(
    ("bits", "kind", "key", "levels"),
    [(16, 0, 13_600, 2), (16, 2, 13_600, 6), (16, 2, 65_535, 6), (2, 0, 1, 2), (4, 0, 9, 2)],
)
def test_the_transparent_level_of_a_png(tmp_path: Path, bits: int, kind: int, key: int, levels: int) -> None:
    """Four pixels, of which the last has it: white, as the page is."""
    own = [0, key // 2, 5 % (1 << bits), key]
    if bits == 16:
        row = b"".join(value.to_bytes(2, "big") * (levels // 2) for value in own)
    else:
        row = sum(value << bits * (3 - place) for place, value in enumerate(own)).to_bytes(bits // 2, "big")
    header = struct.pack(">IIBBBBB", 4, 1, bits, kind, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n"
    for name, content in (
        (b"IHDR", header),
        (b"tRNS", key.to_bytes(2, "big") * (levels // 2)),
        (b"IDAT", zlib.compress(b"\0" + row)),
        (b"IEND", b""),
    ):
        data += len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")
    white = (1 << bits) - 1
    shown = single_row(save(tmp_path, data))["frame"][0, :, 0]
    assert shown.tolist() == [
        255 if value == key else (value >> 8 if bits == 16 else value * 255 // white) for value in own
    ]


@pytest.mark.parametrize(("place", "value"), [(0, 0xF7), (0, 0xC5), (3, 12)], ids=["LS", "hierarchical", "12 bits"])
def test_a_rare_jpeg_is_not_called_damaged(tmp_path: Path, place: int, value: int) -> None:
    data = bytearray(encoded(Pil.fromarray(scene(64, 96)), "JPEG"))
    data[data.index(b"\xff\xc0") + 1 + place] = value
    assert single_failure(save(tmp_path, bytes(data)))[0] == "unsupported"


def test_an_avif_shows_its_clean_aperture(tmp_path: Path) -> None:
    data = encoded(Pil.fromarray(scene(64, 96)), "AVIF", quality=100, subsampling="4:4:4")
    links = data.index(b"ipma") - 4
    count = links + 18  # of the first item's properties; one byte each follows
    body = struct.pack(">I4s8i", 40, b"clap", 40, 1, 48, 1, 20, 1, -4, 1)
    listed = data[data.index(b"ipco") + 4 : links]
    number = 0x81 + sum(name in listed for name in (b"ispe", b"pixi", b"av1C", b"colr"))
    end = count + 1 + data[count]
    made = bytearray(data[:count] + bytes([data[count] + 1]) + data[count + 1 : end] + bytes([number]) + data[end:])
    made[links:links] = body
    for name, more in ((b"ipma", 1), (b"ipco", 40), (b"iprp", 41), (b"meta", 41)):
        at = made.index(name) - 4
        made[at : at + 4] = (int.from_bytes(made[at : at + 4], "big") + more).to_bytes(4, "big")
    place = made.index(b"iloc") + 18
    made[place : place + 4] = (int.from_bytes(made[place : place + 4], "big") + 41).to_bytes(4, "big")
    shown = single_row(save(tmp_path, bytes(made)))["frame"]
    assert shown.shape == (48, 40, 3) and np.abs(shown.astype(int) - scene(64, 96)[4:52, 48:88]).mean() < 2
