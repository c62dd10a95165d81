"""Colours of photos in sRGB: profiles and code points, against the formulas of their standards."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pil
from PIL import ImageCms

from tests.media.images.test_colours import ten_bits
from tests.support.media.colour_profiles import (
    ADOBE_RGB,
    BT709,
    DISPLAY_P3,
    PRO_PHOTO,
    expected,
    grey_profile,
    ink_profile,
    rgb_profile,
)
from tests.support.media.media_factory import decoded, encoded, with_chunk
from tests.support.media.photo_factory import save, single_row

COLOURS = np.array([[180, 60, 60], [60, 180, 60], [60, 60, 180], [128, 128, 128], [255, 255, 255], [20, 40, 30]])
SIDE = 16
PATCHES = np.repeat(np.repeat(COLOURS[None].astype(np.uint8), SIDE, axis=1), SIDE, axis=0)
PROFILES = {"P3": (DISPLAY_P3, 2.2), "Adobe": (ADOBE_RGB, 2.199), "ProPhoto": (PRO_PHOTO, 1.8)}
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def shown(path: Path, column: str = "frame") -> tuple[np.ndarray, str | None]:
    row = single_row(path)
    height, width = row[column].shape[:2]
    step = width // len(COLOURS)
    return row[column][height // 2, step // 2 :: step].astype(int), row["color_space"]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF", "P", "RGBA"])
def test_a_profile_is_applied_in_every_format(tmp_path: Path, kind: str, name: str) -> None:
    options = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}.get(kind, {})
    options |= {"quality": 100, "subsampling": "4:4:4"} if kind == "AVIF" else {}
    options |= {"quality": -1} if kind == "HEIF" else {}
    image = Pil.fromarray(PATCHES)
    image = image.quantize(8) if kind == "P" else image.convert("RGBA") if kind == "RGBA" else image
    data = encoded(image, "PNG" if kind in ("P", "RGBA") else kind, icc_profile=rgb_profile(*PROFILES[name]), **options)
    colours, note = shown(save(tmp_path, data))
    assert note == "ICC made"
    assert np.abs(colours - expected(COLOURS, *PROFILES[name])).max() <= 4 + 6 * (kind in ("JPEG", "AVIF", "HEIF"))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_profile_of_srgb_changes_no_bit(tmp_path: Path, kind: str) -> None:
    images = []
    for options in ({}, {"icc_profile": SRGB}, {"icc_profile": rgb_profile(*PROFILES["P3"])}):
        row = single_row(save(tmp_path, encoded(Pil.fromarray(PATCHES), kind, **options)))
        images.append((row["frame"].tobytes(), row["color_space"]))
    assert images[0] == images[1] and images[0][1] is None and images[2][0] != images[0][0]


@pytest.mark.parametrize(
    "profile",
    [
        b"no profile",
        SRGB[:200],
        SRGB[:128] + b"\xff" * 400,
        SRGB[:128] + bytes(len(SRGB) - 128),
        b"x" * (5 << 20),
        ink_profile((55, -37, -50)),
        grey_profile(1.8),
    ],
    ids=["text", "cut", "ones", "zeros", "large", "of inks", "of greys"],
)
def test_a_damaged_profile_or_one_of_other_channels_loses_no_photo(tmp_path: Path, profile: bytes) -> None:
    colours, note = shown(save(tmp_path, encoded(Pil.fromarray(PATCHES), "JPEG", quality=100, icc_profile=profile)))
    assert np.abs(colours - COLOURS).max() <= 6
    assert note in ("ICC, not readable", "ICC made, of other channels")


def test_greys_and_inks_have_profiles_of_their_own(tmp_path: Path) -> None:
    grey = Pil.fromarray(PATCHES[:, :, 0])
    for image, options in (
        (grey, {}),
        (grey.convert("LA"), {}),
        (Pil.fromarray(PATCHES[:, :, 0].astype(np.uint16) * 257), {}),
    ):
        colours, note = shown(save(tmp_path, encoded(image, "PNG", icc_profile=grey_profile(1.8), **options)))
        truth = expected(COLOURS[:, :1].repeat(3, axis=1), PRO_PHOTO, 1.8)
        assert note == "ICC made" and np.abs(colours - truth).max() <= 3
    ink = np.zeros((32, 64, 4), np.uint8)
    ink[:, :32, 0] = 255
    photo = encoded(Pil.frombuffer("CMYK", (64, 32), ink.tobytes()), "TIFF", icc_profile=ink_profile((55, -37, -50)))
    row = single_row(save(tmp_path, photo))
    assert row["color_space"] == "ICC made"
    assert np.abs(row["frame"][16, [16, 48]].astype(int) - [(0, 149, 219), (255, 255, 255)]).max() <= 6


@pytest.mark.heavy  # preparing libswscale for each kind takes seconds; `test_colours` maps films
@pytest.mark.parametrize("transfer", [16, 18])
def test_hdr_of_a_photo_is_mapped_as_that_of_a_film(tmp_path: Path, transfer: int) -> None:
    signal = np.array([[1, 1, 1], [0.58, 0.58, 0.58], [0.4, 0.4, 0.4], [0.5, 0.42, 0.42]])
    rows, _ = decoded(ten_bits(tmp_path / "film.mkv", signal, transfer=transfer, primaries=9))
    name, film = f"CICP BT.2020 {'PQ' if transfer == 16 else 'HLG'}", rows[1]["frame"][16, 16::32].astype(int)
    assert {row["color_space"] for row in rows} == {name}
    flat = np.repeat(np.repeat(np.rint(255 * signal)[None].astype(np.uint8), 32, axis=1), 32, axis=0)
    png = with_chunk(encoded(Pil.fromarray(flat), "PNG", icc_profile=SRGB), b"cICP", bytes((9, transfer, 0, 1)))
    photos = {"PNG": png}
    for kind, options in (("AVIF", {"quality": 100, "subsampling": "4:4:4"}), ("HEIF", {"quality": -1})):
        data = bytearray(encoded(Pil.fromarray(flat), kind, **options))
        at = data.index(b"colrnclx") + 8
        data[at : at + 4] = (9).to_bytes(2, "big") + transfer.to_bytes(2, "big")
        photos[kind] = bytes(data)
    for kind, data in photos.items():
        row = single_row(save(_made(tmp_path / kind), data))
        assert row["color_space"] == name, kind
        assert np.abs(row["frame"][16, 16::32].astype(int) - film).max() <= 12, kind


def test_code_points_of_wide_colours_and_powers(tmp_path: Path) -> None:
    plain = encoded(Pil.fromarray(PATCHES), "PNG")
    light = np.where(COLOURS <= 10, COLOURS / 255 / 12.92, ((COLOURS / 255 + 0.055) / 1.055) ** 2.4)
    for number, name, primaries in (
        (12, "Display P3", DISPLAY_P3),
        (5, "BT.470BG", ((0.64, 0.33), (0.29, 0.60), (0.15, 0.06), DISPLAY_P3[3])),
        (11, "DCI-P3", (*DISPLAY_P3[:3], (0.314, 0.351))),
        (22, "EBU 3213", ((0.63, 0.34), (0.295, 0.605), (0.155, 0.077), DISPLAY_P3[3])),
    ):
        wide = shown(save(tmp_path, with_chunk(plain, b"cICP", bytes((number, 13, 0, 1)))))
        assert wide[1] == f"CICP {name}" and np.abs(wide[0] - expected(255 * light, primaries, 1.0)).max() <= 2
    power = shown(save(tmp_path, with_chunk(plain, b"cICP", bytes((12, 4, 0, 1)))))
    assert power[1] == "CICP Display P3 with the power 2.2"
    assert np.abs(power[0] - expected(COLOURS, DISPLAY_P3, 2.2)).max() <= 2
    for points in ((1, 13, 0, 1), (1, 1, 0, 1), (2, 2, 0, 1), (200, 16, 0, 1)):
        colours, note = shown(save(tmp_path, with_chunk(plain, b"cICP", bytes(points))))
        assert note is None and np.array_equal(colours, COLOURS)
    assert np.array_equal(shown(save(tmp_path, with_chunk(plain, b"cICP", b"\x0c")))[0], COLOURS), "cut"


def test_code_points_of_another_image_of_the_file_are_not_the_photo_s(tmp_path: Path) -> None:
    """As of a gain map: here nothing has them."""
    data = bytearray(encoded(Pil.fromarray(PATCHES), "AVIF", quality=100, subsampling="4:4:4"))
    at = data.index(b"colrnclx")
    data[at + 8 : at + 12] = b"\0\x0c\0\x0d"
    listed = data[data.index(b"ipco") + 4 : at - 4]
    number = sum(listed.count(name) for name in (b"ispe", b"pixi", b"av1C")) + 1
    links = data.index(b"ipma") + 4
    place = data.index(bytes([number]), links + 11)
    assert shown(save(tmp_path, bytes(data)))[1] == "CICP Display P3"
    data[place] = 1
    colours, note = shown(save(tmp_path, bytes(data)))
    assert note is None and np.abs(colours - COLOURS).max() <= 6


def test_lab_of_eight_bits(tmp_path: Path) -> None:
    lab = np.array([[112, 49, 28], [166, 204, 49], [81, 31, 191], [137, 0, 0], [255, 0, 0], [36, 245, 4]], np.uint8)
    data = encoded(Pil.frombytes("LAB", (6, 1), lab.tobytes()).resize((96, 16), 0), "TIFF")
    colours, note = shown(save(tmp_path, data))
    assert note == "CIE L*a*b*" and np.abs(colours - COLOURS).max() <= 6


PLACES = {
    "P3": (3127, 3290, 6800, 3200, 2650, 6900, 1500, 600),
    "BT.709": (3127, 3290, 6400, 3300, 3000, 6000, 1500, 600),
}


@pytest.mark.parametrize("mode", ["RGB", "P", "L"])
def test_gamma_and_primaries_of_a_png(tmp_path: Path, mode: str) -> None:
    image = Pil.fromarray(PATCHES[:, :, 0] if mode == "L" else PATCHES)
    plain = encoded(image.quantize(8) if mode == "P" else image, "PNG")
    colours = COLOURS[:, :1].repeat(3, axis=1) if mode == "L" else COLOURS

    def show(gamma: int, places: str | None = None, *more: bytes) -> tuple[np.ndarray, str | None]:
        data = with_chunk(plain, b"gAMA", gamma.to_bytes(4, "big"))
        if places:
            data = with_chunk(data, b"cHRM", b"".join((10 * value).to_bytes(4, "big") for value in PLACES[places]))
        for name in more:
            data = with_chunk(data, name, b"\0")
        return shown(save(tmp_path, data))

    for gamma, places in ((45_455, None), (45_000, "BT.709"), (0, "P3"), (4_000_000_000, None)):
        assert np.array_equal(show(gamma, places)[0], colours) and show(gamma, places)[1] is None
    assert show(100_000, "P3", b"sRGB")[1] is None, "the chunk sRGB counts first"
    levels, note = show(100_000)
    assert note == "PNG gAMA 1" and np.abs(levels - expected(colours, BT709, 1.0)).max() <= 2
    if mode != "L":
        levels, note = show(55_556, "P3")
        assert note == "PNG gAMA 0.556 with cHRM" and np.abs(levels - expected(colours, DISPLAY_P3, 1.8)).max() <= 3


def test_frames_of_animations_and_parts_of_photos_are_converted_too(tmp_path: Path) -> None:
    out = io.BytesIO()
    frames = [Pil.fromarray(np.roll(PATCHES, 1, axis=0) // part) for part in (1, 2)]
    profile = rgb_profile(*PROFILES["Adobe"])
    frames[0].save(out, "PNG", save_all=True, append_images=frames[1:], icc_profile=profile)
    rows, _ = decoded(save(tmp_path, out.getvalue()))
    for part, row in zip((1, 2), rows, strict=True):
        truth = expected(COLOURS // part, *PROFILES["Adobe"])
        assert row["color_space"] == "ICC made" and np.abs(row["frame"][8, 8::16] - truth).max() <= 4
    data = encoded(Pil.fromarray(PATCHES.repeat(8, axis=0)), "JPEG", quality=100, icc_profile=profile)
    rows, _ = decoded(save(tmp_path, data[: len(data) * 7 // 8]))
    assert (rows[0]["color_space"], rows[0]["damaged"]) == ("ICC made", "truncated")
    assert np.abs(rows[0]["frame"][8, 8::16] - expected(COLOURS, *PROFILES["Adobe"])).max() <= 12
