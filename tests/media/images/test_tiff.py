"""TIFF photos by what their tags say: right pixels, or a named variant; never other pixels, and never "corrupt"."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.support.media.media_factory import decoded

RAMP = np.linspace(0, 1, 64)[None].repeat(16, axis=0)
Tag = tuple[int, tuple[int, ...]]


def tiff(pixels: np.ndarray, tags: tuple[Tag, ...] = (), *, white_is_zero: bool = False, apart: bool = False) -> bytes:
    """Write pixels, h w or h w c, as an uncompressed TIFF in the byte order of their numbers."""
    height, width, samples = (*pixels.shape, 1)[:3]
    order = ">" if pixels.dtype.byteorder == ">" else "<"
    kind = {"u": 1, "i": 2, "f": 3}[pixels.dtype.kind]
    stored = (np.moveaxis(pixels, 2, 0) if apart and samples > 1 else pixels).tobytes()
    size = len(stored) // samples if apart else len(stored)
    planes = samples if apart else 1
    colour = 2 if samples >= 3 else int(not white_is_zero)
    entries: list[Tag] = [
        (256, (width,)), (257, (height,)), (258, (8 * pixels.dtype.itemsize,) * samples), (259, (1,)), (262, (colour,)),
        (273, tuple(8 + i * size for i in range(planes))), (277, (samples,)), (278, (height,)), (279, (size,) * planes),
        (284, (2 if apart else 1,)), (339, (kind,) * samples), *tags,
        *([(338, (2,))] if samples in (2, 4) else []),
    ]  # fmt: skip
    at, extra, lines = 8 + len(stored), b"", b""
    after = at + 2 + 12 * len(entries) + 4
    for tag, values in sorted(entries):
        packed = struct.pack(f"{order}{len(values)}I", *values)
        place = packed if len(values) == 1 else struct.pack(f"{order}I", after + len(extra))
        extra += packed if len(values) > 1 else b""
        lines += struct.pack(f"{order}HHI", tag, 4, len(values)) + place
    head = (b"MM" if order == ">" else b"II") + struct.pack(f"{order}HI", 42, at)
    return head + stored + struct.pack(f"{order}H", len(entries)) + lines + bytes(4) + extra


def read(tmp_path: Path, data: bytes) -> tuple[np.ndarray | None, list[str]]:
    (tmp_path / "a.tif").write_bytes(data)
    rows, failures = decoded(tmp_path / "a.tif", ("frame",))
    return (rows[0]["frame"] if rows else None), [failure.kind for failure in failures]


@pytest.mark.parametrize(
    ("kind", "white_is_zero"),
    [("u1", False), ("<u2", False), ("<u4", False), ("<f4", False), ("u1", True), ("<u2", True), ("<f4", True)],
)
def test_a_grey_ramp_goes_from_black_to_white(tmp_path: Path, kind: str, white_is_zero: bool) -> None:
    most = 1.0 if kind == "<f4" else 256 ** np.dtype(kind).itemsize - 1
    ramp = (1 - RAMP if white_is_zero else RAMP) * most
    image, failures = read(tmp_path, tiff(ramp.astype(kind), white_is_zero=white_is_zero))
    assert failures == [] and image is not None
    assert image[8, :, 1] == pytest.approx(255 * RAMP[8], abs=1.5)


@pytest.mark.parametrize(
    "pixels",
    [
        pytest.param(RAMP[..., None].repeat(3, axis=2).astype("<f4"), id="floating-point colours"),
        pytest.param((65535 * RAMP[..., None].repeat(2, axis=2)).astype("<u2"), id="grey with alpha, 16 bits"),
        pytest.param((65535 * RAMP[..., None].repeat(7, axis=2)).astype("<u2"), id="seven bands"),
        pytest.param((4294967295 * (1 - RAMP)).astype("<u4"), id="white is zero, 32 bits"),
        pytest.param((65535 * (1 - RAMP)).astype(">u2"), id="white is zero, 16 bits, big-endian"),
    ],
)
def test_a_variant_that_is_not_read_is_named_and_not_called_damaged(tmp_path: Path, pixels: np.ndarray) -> None:
    image, failures = read(tmp_path, tiff(pixels, white_is_zero=True))
    assert (image, failures) == (None, ["unsupported"])


def test_wide_channels_in_planes_are_no_noise(tmp_path: Path) -> None:
    colours = (65535 * RAMP[..., None].repeat(3, axis=2)).astype("<u2")
    assert read(tmp_path, tiff(colours, apart=True)) == (None, ["unsupported"])
    image, failures = read(tmp_path, tiff((colours >> 8).astype("u1"), apart=True))
    assert failures == [] and image is not None
    assert image[8] == pytest.approx(255 * RAMP[8, :, None].repeat(3, axis=1), abs=1.5)


def test_a_thumbnail_before_the_photo_is_not_taken_for_it(tmp_path: Path) -> None:
    small, whole = tiff(np.zeros((4, 4), "u1"), ((254, (1,)),)), tiff((255 * RAMP).astype("u1"))
    first = struct.unpack("<I", small[4:8])[0]
    link = first + 2 + 12 * struct.unpack("<H", small[first : first + 2])[0]
    at = len(small)
    moved = bytearray(whole)  # the second page's offsets move by the first one's length
    begin = struct.unpack("<I", whole[4:8])[0]
    for i in range(struct.unpack("<H", whole[begin : begin + 2])[0]):
        entry = begin + 2 + 12 * i
        if struct.unpack("<H", whole[entry : entry + 2])[0] == 273:
            moved[entry + 8 : entry + 12] = struct.pack("<I", at + 8)
    data = small[:link] + struct.pack("<I", at + begin) + small[link + 4 :] + bytes(moved)
    image, failures = read(tmp_path, data)
    assert failures == [] and image is not None and image.shape == (16, 64, 3)
