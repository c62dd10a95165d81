"""TIFF photos by what their tags say: right pixels, or a named variant; never other pixels, and never "corrupt"."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.support.media.media_factory import decoded
from tests.support.media.tiff_factory import join_pages, tiff

LEVELS = np.linspace(0, 1, 64)[None].repeat(32, axis=0)
COLOURS = np.stack([LEVELS, LEVELS / 2, 0 * LEVELS], axis=2)
NUMBERS = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "f2", "f4", "f8"]
ALPHA = {"together": (338, (2,)), "multiplied": (338, (1,)), "none": (338, (0,))}


def scaled(values: np.ndarray, kind: str) -> np.ndarray:
    """Return values between 0 and 1 as numbers of a kind, of which 1 is the most."""
    if kind[0] == "f":
        return values
    bits = 8 * int(kind[1]) - (kind[0] == "i")
    return (values * 4095).astype("u8") << max(0, bits - 12) >> max(0, 12 - bits)


def read(tmp_path: Path, data: bytes) -> tuple[np.ndarray | None, list[str]]:
    (tmp_path / "a.tif").write_bytes(data)
    rows, failures = decoded(tmp_path / "a.tif", ("frame",))
    return (rows[0]["frame"].astype(int) if rows else None), [failure.kind for failure in failures]


def check(tmp_path: Path, data: bytes, right: np.ndarray) -> None:
    image, failures = read(tmp_path, data)
    assert failures == [] and image is not None
    levels = 255 * (right if right.ndim == 3 else right[..., None].repeat(3, axis=2))
    np.testing.assert_allclose(image, levels, rtol=0, atol=1.5)


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("way", ["plain", "backwards", "deflate", "predicted", "planes", "tiles", "big", "all"])
def test_pixels_are_read_whatever_their_numbers_and_places(tmp_path: Path, kind: str, way: str) -> None:
    order = ">" if way in ("backwards", "all") else "<"
    predictor = (3 if kind[0] == "f" else 2) if way in ("predicted", "all") and kind != "u8" else 1
    options = {
        "order": order,
        "deflate": way in ("deflate", "predicted", "all"),
        "predictor": predictor,
        "apart": way in ("planes", "all"),
        "tile": (16, 48) if way in ("tiles", "all") else None,
        "is_big": way in ("big", "all"),
    }
    alpha = np.concatenate([COLOURS, np.full((*LEVELS.shape, 1), 0.5)], axis=2)
    grey = np.stack([LEVELS, np.full(LEVELS.shape, 0.5)], axis=2)
    opaque = 1.0 if kind[0] == "i" else 0.5  # what is opaque in signed numbers is not defined
    for values, tags, right in (
        (LEVELS, (), LEVELS),
        (COLOURS, (), COLOURS),
        (alpha, (ALPHA["together"],), opaque * COLOURS + 1 - opaque),
        (grey, (ALPHA["together"],), opaque * LEVELS + 1 - opaque),
        (grey, (ALPHA["none"],), LEVELS),
    ):
        check(tmp_path, tiff(scaled(values, kind).astype(kind), tags, **options), right)


@pytest.mark.parametrize("kind", ["u1", "u2"])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("extra", [(0,), (1,), (2,), (0, 2), (2, 0), (2, 2), (0, 0, 1)])
def test_the_first_alpha_among_further_channels_is_the_alpha(
    tmp_path: Path, kind: str, apart: bool, extra: tuple[int, ...]
) -> None:
    """A channel of depth or a selection may stand before it; without any alpha all is opaque."""
    alpha = next((at for at, one in enumerate(extra) if one), None)
    for values, photometric in ((COLOURS, 2), (LEVELS[..., None], 1)):
        share = 1.0 if alpha is None else 0.5
        own = values * share if alpha is not None and extra[alpha] == 1 else values
        more = [np.full((*LEVELS.shape, 1), 0.5 if at == alpha else 0.25) for at in range(len(extra))]
        pixels = scaled(np.concatenate([own, *more], axis=2), kind).astype(kind)
        data = tiff(pixels, ((338, extra),), photometric=photometric, apart=apart)
        check(tmp_path, data, share * values.repeat(3 // values.shape[2], axis=2) + 1 - share)


@pytest.mark.parametrize("photometric", [32803, 34892])
def test_a_thumbnail_over_raw_pixels_is_no_photo(tmp_path: Path, photometric: int) -> None:
    """Cameras write it as the first page, some without a tag that calls it a thumbnail; also under another name."""
    raw = tiff(scaled(LEVELS, "u2").astype("u2"), photometric=photometric)
    assert read(tmp_path, under(SMALL, raw)) == (None, ["unsupported"])
    assert read(tmp_path, under(THUMBNAIL, raw)) == (None, ["unsupported"])


def test_a_photo_under_its_thumbnail_is_read(tmp_path: Path) -> None:
    photo = tiff(scaled(LEVELS, "u1").astype("u1"))
    check(tmp_path, under(THUMBNAIL, photo), LEVELS)
    check(tmp_path, under(SMALL, photo), COLOURS)  # a photo over a copy
    assert read(tmp_path, under(THUMBNAIL, photo)[: -len(photo)]) == (None, ["unsupported"])  # as a cut raw file
    assert read(tmp_path, under(THUMBNAIL, THUMBNAIL)) == (None, ["unsupported"])


SMALL = tiff(scaled(COLOURS, "u1").astype("u1"), ((330, (0,)),))
THUMBNAIL = tiff(scaled(COLOURS, "u1").astype("u1"), ((254, (1,)), (330, (0,))))


def under(small: bytes, other: bytes) -> bytes:
    """Return a TIFF with the page of another under its own, not after it."""
    data = bytearray(join_pages([small, other]))
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    entries = range(at + 2, at + 2 + 12 * count, 12)
    link = next(entry for entry in entries if struct.unpack_from("<H", data, entry)[0] == 330)
    struct.pack_into("<HII", data, link + 2, 4, 1, *struct.unpack_from("<I", data, entries.stop))
    struct.pack_into("<I", data, entries.stop, 0)
    return bytes(data)


@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "f4", "i2"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_white_may_be_zero(tmp_path: Path, kind: str, order: str) -> None:
    values = scaled(1 - LEVELS, kind).astype(kind)
    check(tmp_path, tiff(values, photometric=0, order=order), LEVELS)
    check(tmp_path, tiff(values, photometric=0, order=order, deflate=True), LEVELS)


@pytest.mark.parametrize("kind", ["u1", "u2", "f4"])
def test_colours_that_are_multiplied_with_alpha(tmp_path: Path, kind: str) -> None:
    for values in (LEVELS[..., None], COLOURS):
        stored = np.concatenate([values / 2, np.full((*LEVELS.shape, 1), 0.5)], axis=2)
        check(
            tmp_path, tiff(scaled(stored, kind).astype(kind), (ALPHA["multiplied"],)), (values / 2 + 0.5) * np.ones(3)
        )


@pytest.mark.parametrize("bits", [2, 4, 6, 10, 12, 14])
def test_numbers_that_are_packed(tmp_path: Path, bits: int) -> None:
    most = (1 << bits) - 1
    for values in (LEVELS[:, :61], COLOURS[:, :61]):  # a row ends inside a byte
        numbers = np.rint(values * most).astype(int)
        singles = (numbers.reshape(32, -1, 1) >> np.arange(bits)[::-1] & 1).reshape(32, -1).astype(np.uint8)
        packed = np.packbits(singles, axis=1)
        tags = (256, (61,)), (258, (bits,) * (values.size // values[..., :1].size if values.ndim == 3 else 1))
        samples = 3 if values.ndim == 3 else 1
        data = tiff(packed, (*tags, (277, (samples,)), (262, (2 if samples == 3 else 1,)), (339, (1,) * samples)))
        check(tmp_path, data, numbers / most)


def test_bits_in_the_other_direction(tmp_path: Path) -> None:
    numbers = scaled(LEVELS, "u2").astype("u2")
    turned = np.packbits(np.unpackbits(numbers.view("u1"), bitorder="little")).view("u2").reshape(numbers.shape)
    check(tmp_path, tiff(turned, ((266, (2,)),)), LEVELS)


def test_a_palette_of_sixteen_bits(tmp_path: Path) -> None:
    numbers = scaled(LEVELS, "u2").astype("u2")
    ramp = np.arange(65536)
    palette = (320, (*ramp, *ramp[::-1], *(0 * ramp)))
    check(tmp_path, tiff(numbers, (palette,), photometric=3), np.stack([LEVELS, 1 - LEVELS, 0 * LEVELS], axis=2))


@pytest.mark.parametrize("deflate", [True, False])
def test_a_palette_of_eight_bits_in_the_lower_half(tmp_path: Path, deflate: bool) -> None:
    numbers, ramp = scaled(LEVELS, "u1").astype("u1"), np.arange(256)
    palette = (320, (*ramp, *ramp[::-1], *(0 * ramp)))
    data = tiff(numbers, (palette,), photometric=3, deflate=deflate)
    check(tmp_path, data, np.stack([LEVELS, 1 - LEVELS, 0 * LEVELS], axis=2))


@pytest.mark.parametrize("kind", ["u1", "u2"])
def test_numbers_of_a_kind_that_is_stated_as_unknown_are_unsigned(tmp_path: Path, kind: str) -> None:
    check(tmp_path, tiff(scaled(COLOURS, kind).astype(kind), ((339, (4,) * 3),)), COLOURS)


@pytest.mark.parametrize("kind", ["u1", "u2"])
def test_without_a_photometric_tag_black_is_zero(tmp_path: Path, kind: str) -> None:
    for values in (LEVELS, COLOURS):
        check(tmp_path, tiff(scaled(values, kind).astype(kind), ((262, ()),)), values)


@pytest.mark.parametrize(("across", "down"), [(1, 1), (2, 1), (2, 2), (4, 2)])
@pytest.mark.parametrize("deflate", [False, True])
def test_colours_in_fewer_pixels_than_light(tmp_path: Path, across: int, down: int, *, deflate: bool) -> None:
    light = np.tile(np.rint(100 + 50 * LEVELS[0]), (32, 1))
    cells = light.reshape(32 // down, down, 64 // across, across).transpose(0, 2, 1, 3)
    cells = cells.reshape(32 // down, 64 // across, -1)
    stored = np.concatenate([cells, np.full((*cells.shape[:2], 2), (110, 140))], axis=2).astype(np.uint8)
    tags = (256, (64,)), (257, (32,)), (258, (8,) * 3), (277, (3,)), (278, (20 * down,)), (339, (1,) * 3)
    data = tiff(stored.reshape(len(stored), -1), (*tags, (530, (across, down))), photometric=6, deflate=deflate)
    check(tmp_path, data, (light[..., None] + [1.402 * 12, 0.344 * 18 - 0.714 * 12, -1.772 * 18]) / 255)


def test_what_is_not_finite_is_white_or_black(tmp_path: Path) -> None:
    values = COLOURS.astype("f4")
    values[COLOURS == 1], values[:, 0] = np.inf, -np.inf
    check(tmp_path, tiff(values), COLOURS)


def test_further_channels_are_not_shown(tmp_path: Path) -> None:
    for samples in (4, 5, 6):
        ink = np.concatenate([1 - COLOURS, 0 * LEVELS[..., None], *[LEVELS[..., None]] * (samples - 4)], axis=2)
        for kind in ("u1", "u2", "f4"):
            check(tmp_path, tiff(scaled(ink, kind).astype(kind), photometric=5), COLOURS)
    more = np.concatenate([COLOURS, COLOURS], axis=2)
    check(tmp_path, tiff(scaled(more, "u1").astype("u1"), ((338, (0, 0, 0)),)), COLOURS)


@pytest.mark.parametrize("turn", range(1, 9))
def test_wide_photos_are_turned(tmp_path: Path, turn: int) -> None:
    for kind in ("u1", "u2", "f4"):
        image, _ = read(tmp_path, tiff(scaled(COLOURS, kind).astype(kind), ((274, (turn,)),)))
        assert image is not None and image.shape[:2] == ((64, 32) if turn > 4 else (32, 64))
        corner = {1: (0, -1), 2: (0, 0), 3: (0, 0), 4: (0, -1), 5: (-1, 0), 6: (-1, 0), 7: (0, 0), 8: (0, 0)}[turn]
        assert image[corner] == pytest.approx((255, 127.5, 0), abs=1.5)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(tiff(np.zeros((32, 64, 7), "u2")), id="seven bands"),
        pytest.param(tiff(np.zeros((32, 64, 4), "u1"), photometric=1), id="grey of four bands"),
        pytest.param(tiff(np.zeros((32, 64, 3), "u2"), photometric=8), id="L*a*b* of 16 bits"),
        pytest.param(tiff(np.zeros((32, 64, 3), "c8"), ((339, (6,)),)), id="complex"),
        *(
            pytest.param(tiff(np.zeros((32, 64, 4), kind), ((332, (2,)),), photometric=5), id=f"inks of others, {kind}")
            for kind in ("u1", "u2")
        ),
        *(
            pytest.param(tiff(np.zeros((32, 64, 3), "u1"), ((259, (way,)),)), id=f"compression {way}")
            for way in (6, 9, 32809, 34712, 34887, 50001, 50002, 65000)
        ),
        pytest.param(tiff(np.zeros((32, 64), "u2"), ((259, (7,)),)), id="JPEG of 16 bits"),
    ],
)
def test_a_variant_that_is_not_read_is_named_and_not_called_damaged(tmp_path: Path, data: bytes) -> None:
    assert read(tmp_path, data) == (None, ["unsupported"])


@pytest.mark.parametrize("kind", ["u1", "u2", "f4"])
def test_damage_is_not_called_a_variant(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(5)
    whole = tiff(rng.integers(0, 256, (96, 96, 3)).astype(kind), deflate=True)
    damaged = bytearray(whole)
    damaged[16:20] = bytes(4)  # libtiff looks at no checksum
    assert read(tmp_path, bytes(damaged)) == (None, ["corrupt"])
    offsets = tiff(np.zeros((32, 64, 3), kind), ((273, (1 << 30,)),))
    image, failures = read(tmp_path, offsets)
    assert image is None and failures in (["truncated"], ["corrupt"])


@pytest.mark.parametrize("part", [1, 4, 5], ids=["thumbnail", "mask", "mask of a thumbnail"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["u1", "u2"])
def test_a_thumbnail_or_mask_before_the_photo_is_not_taken_for_it(
    tmp_path: Path, part: int, order: str, kind: str
) -> None:
    small = tiff(np.zeros((4, 4), "u1"), ((254, (part,)), (262, (4 if part > 1 else 1,))), order=order)
    whole = tiff(scaled(LEVELS, kind).astype(kind), order=order)
    check(tmp_path, join_pages([small, whole]), LEVELS)
    check(tmp_path, join_pages([whole, small]), LEVELS)


def test_sizes_of_a_header_are_no_order_for_memory(tmp_path: Path) -> None:
    for tags in (
        ((256, (9000,)), (257, (9000,)), (278, (9000,))),
        ((322, (1 << 20,)), (323, (1 << 20,)), (324, (8,)), (325, (99,))),
        ((322, (1,)), (323, (1,)), (324, (8,)), (325, (99,))),
        ((257, (1 << 31,)),),
    ):
        for deflate in (False, True):
            image, failures = read(tmp_path, tiff(np.zeros((32, 64, 3), "f8"), tags, deflate=deflate))
            assert image is None and len(failures) == 1
