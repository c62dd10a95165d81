"""Light is measured right when a known change of a real photo changes the numbers by what is known."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from framekiln_stages.lighting.photometry import LINEAR, duv, temperature
from framekiln_stages.lighting.stage import Lighting
from tests.support.media.photos import PHOTOS
from tests.support.media.photos import photo as full_photo
from tests.support.stages.lighting_factory import ball, even_scene, gain, light, photo


@pytest.mark.parametrize("name", PHOTOS)
@pytest.mark.parametrize("stops", [-2, -1, 1])
def test_twice_the_light_is_one_stop(name, stops):
    dim = gain(photo(name), 0.4)  # so that twice the light clips nothing
    before, after = light(dim, gain(dim, 2.0**stops))
    assert after["exposure"] - before["exposure"] == pytest.approx(stops, abs=0.05)


def test_less_light_keeps_the_range_until_8_bits_end_it():
    image = photo("china.jpg")
    full, half, starved = (row["dynamic_range"] for row in light(image, gain(image, 0.5), gain(image, 2**-8)))
    assert half == pytest.approx(full, abs=0.2)
    assert starved < full - 1


def test_a_small_image_has_the_figures_of_a_large_one_with_the_same_pixels():
    image = photo("china.jpg")[:64, :64]
    small, large = light(image, np.tile(image, (5, 5, 1)))
    names = ("exposure", "contrast", "dynamic_range", "clipped_highlights")
    assert [small[name] for name in names] == pytest.approx([large[name] for name in names], rel=1e-6)


def test_exposure_of_cards_is_known():
    grey, white, black = light(*(np.full((224, 300, 3), code, np.uint8) for code in (118, 255, 0)))
    assert grey["exposure"] == pytest.approx(0, abs=0.02)
    assert white["exposure"] == pytest.approx(math.log2(1 / 0.18), abs=0.001)
    assert black["exposure"] is None
    assert (white["clipped_highlights"], white["clipped_shadows"]) == (1, 0)
    assert (black["clipped_highlights"], black["clipped_shadows"]) == (0, 1)
    assert [row["lighting_key"] for row in (grey, white, black)] == ["mid-key", "high-key", "low-key"]
    for row in (grey, white, black):
        assert (row["contrast"], row["dynamic_range"], row["light_direction"]) == (pytest.approx(0, abs=1e-4), 0, None)
    assert black["colour_temperature"] is None and white["colour_temperature"] is None


def test_bars_of_films_are_no_underexposure_and_a_black_sky_is():
    wide, night = (np.pad(photo("flower.jpg"), ((150, below), (0, 0), (0, 0))) for below in (150, 0))
    own, boxed, dark = light(photo("flower.jpg"), wide, night)
    names = ("clipped_shadows", "clipped_highlights")
    assert [boxed[name] for name in names] == pytest.approx([own[name] for name in names], abs=0.01)
    assert dark["clipped_shadows"] > 0.19


def test_contrast_and_range_of_a_checkerboard_are_known():
    board = np.kron(np.indices((8, 8)).sum(0) % 2, np.ones((32, 32)))[..., None].repeat(3, 2)
    (row,) = light((60 + 140 * board).astype(np.uint8))
    luminance = LINEAR[[60, 200]]
    low, high = (116 * level ** (1 / 3) - 16 for level in luminance)
    assert row["contrast"] == pytest.approx((high - low) / 200, abs=1e-3)
    assert row["dynamic_range"] == pytest.approx(math.log2(luminance[1] / luminance[0]), abs=0.01)


@pytest.mark.parametrize("name", PHOTOS)
def test_a_flatter_gamma_lowers_contrast_and_range_and_lifts_exposure(name):
    rows = light(*(np.rint(255 * (photo(name) / 255) ** gamma).astype(np.uint8) for gamma in (1.0, 0.7, 0.4)))
    for quantity in ("contrast", "dynamic_range"):
        values = [row[quantity] for row in rows]
        assert values == sorted(values, reverse=True)
    assert rows[0]["exposure"] < rows[1]["exposure"] < rows[2]["exposure"]


def test_the_concert_is_darkest_and_the_hazy_workshop_flattest():
    names = ["concert.jpg", "low-contrast.jpg", "moon.png"]
    concert, hazy, moon = light(*(photo(f"lighting/{name}") for name in names))
    assert concert["exposure"] < moon["exposure"] < hazy["exposure"]
    assert [row["lighting_key"] for row in (concert, hazy, moon)] == ["low-key", "mid-key", "mid-key"]
    assert concert["clipped_shadows"] > 0.3 and hazy["clipped_shadows"] == 0
    assert hazy["dynamic_range"] < moon["dynamic_range"] < concert["dynamic_range"]
    assert hazy["contrast"] < concert["contrast"] / 2
    assert concert["colour_temperature"] == pytest.approx(6504, abs=5)  # black and white


# Colour


@pytest.mark.parametrize(
    ("x", "y", "kelvin", "distance"),
    [
        (0.44757, 0.40745, 2856, 0.0),
        (0.31271, 0.32902, 6504, 0.0032),
        (0.34567, 0.35850, 5003, 0.0033),
        (0.28070, 0.28840, 10000, 0.0),
    ],
    ids=["illuminant A", "D65", "D50", "a black body of 10000 K"],
)
def test_standard_illuminants_have_their_colour_temperature(x, y, kelvin, distance):
    assert temperature(x, y) == pytest.approx(kelvin, rel=0.015)
    assert duv(x, y) == pytest.approx(distance, abs=0.0005)


@pytest.mark.parametrize("name", PHOTOS)
def test_warmer_light_has_a_lower_colour_temperature_step_by_step(name):
    image = gain(photo(name), 0.5)
    rows = light(*(gain(image, [step, 1.0, 1 / step]) for step in (0.8, 0.9, 1.0, 1.1, 1.25)))
    kelvin = [row["colour_temperature"] for row in rows]
    assert None not in kelvin
    assert kelvin == sorted(kelvin, reverse=True)
    assert 1e6 / kelvin[-1] - 1e6 / kelvin[0] > 50  # mired


def test_greener_light_raises_the_tint():
    image = gain(photo("china.jpg"), 0.5)
    magenta, neutral, green = (row["tint"] for row in light(*(gain(image, [1.0, by, 1.0]) for by in (0.9, 1.0, 1.1))))
    assert magenta < neutral < green


def test_a_title_on_black_has_no_colour_temperature():
    image = np.zeros((224, 300, 3), np.uint8)
    image[100:104, 100:150] = 180  # 0.3 % of the pixels
    (row,) = light(image)
    assert (row["colour_temperature"], row["tint"]) == (None, None)
    image[:112] = 180
    assert light(image)[0]["colour_temperature"] == pytest.approx(6504, abs=5)


@pytest.mark.parametrize("code", [(0, 255, 0), (0, 0, 200), (2, 1, 0)])
def test_what_has_no_colour_temperature_gets_none(code):
    (row,) = light(np.full((224, 224, 3), code, np.uint8))
    assert (row["colour_temperature"], row["tint"]) == (None, None)


# Direction


def angle_between(one: float, other: float) -> float:
    return abs((one - other + 180) % 360 - 180)


def beside(image: np.ndarray, angle: float, stops: float) -> np.ndarray:
    """An image under a lamp at its side, which changes the light by this much across the image."""
    height, width = image.shape[:2]
    y, x = np.mgrid[:height, :width]
    turn = math.radians(angle)
    side = (x / width - 0.5) * math.cos(turn) - (y / height - 0.5) * math.sin(turn)
    return gain(image, 0.5 * 2 ** (stops * side)[..., None])


@pytest.mark.parametrize("name", PHOTOS)
def test_turning_and_mirroring_the_picture_turns_the_light(name):
    for image, told in ((photo(name), False), (beside(photo(name) // 8 + 60, 40, 4), True)):
        views = [image, np.rot90(image), np.rot90(image, 2), image[:, ::-1], image[::-1]]
        rows = light(*(np.ascontiguousarray(view) for view in views))
        angle = rows[0]["light_direction"]
        assert [row["light_direction"] is not None for row in rows] == [told] * 5  # things tell no light
        for row, turned in zip(rows, [(1, 0), (1, 90), (1, 180), (-1, 180), (-1, 0)], strict=True):
            assert not told or angle_between(row["light_direction"], turned[0] * angle + turned[1]) < 1
            assert row["light_strength"] == pytest.approx(rows[0]["light_strength"], abs=0.01)


@pytest.mark.parametrize("angle", range(0, 360, 45))
def test_a_lamp_put_beside_an_evenly_lit_scene_is_found(angle):
    (row,) = light(beside(even_scene(), angle, 2))
    assert angle_between(row["light_direction"], angle) < 10
    assert row["light_strength"] > 0.6


@pytest.mark.parametrize("shape", [(480, 640), (360, 640), (640, 360), (400, 400), (300, 900)])
@pytest.mark.parametrize("angle", [0, 45, 100, 200, 290])
def test_a_lit_sphere_gives_its_direction_in_frames_of_any_shape(shape, angle):
    (row,) = light(ball(*shape, angle))
    assert angle_between(row["light_direction"], angle) < 2


@pytest.mark.parametrize("shape", [(224, 299), (224, 398), (398, 224)])
@pytest.mark.parametrize("wall", [0.02, 0.7, "bricks"])
@pytest.mark.parametrize("at", [(0.4, 0.45), (0.6, 0.4)])
def test_a_lit_sphere_gives_its_direction_wherever_it_stands_and_before_any_wall(shape, wall, at):
    y, x = np.mgrid[: shape[0], : shape[1]]
    bricks = np.where((y % 24 < 3) | ((x + 24 * (y // 24 % 2)) % 48 < 3), 0.5, 0.15)
    for angle in (20, 110, 260):
        (row,) = light(ball(*shape, angle, at=at, radius=0.25, wall=bricks if wall == "bricks" else wall))
        assert angle_between(row["light_direction"], angle) < 5


@pytest.mark.parametrize("shape", [(224, 398), (398, 224)])
def test_a_weak_second_lamp_changes_no_direction_and_two_lamps_or_a_flat_disc_have_none(shape):
    lamps = [ball(*shape, 30, radius=0.25, front=0.2, more=[(120, 0.1)])]
    lamps += [ball(*shape, 30, radius=0.25, front=0.2, more=[(30 + apart, 1.0)]) for apart in (150, 180)]
    disc = cv2.circle(np.full((*shape, 3), 60, np.uint8), (150, 90), 70, (190, 190, 190), -1, cv2.LINE_AA)
    weak, *none = (row["light_direction"] for row in light(*lamps, disc))
    assert angle_between(weak, 30) <= 7 and none == [None] * 3


@pytest.mark.parametrize("shape", [(480, 640), (360, 640), (640, 360)])
@pytest.mark.parametrize("angle", [30, 135, 250])
def test_a_plain_ramp_is_exact_in_frames_of_any_shape(shape, angle):
    y, x = np.mgrid[: shape[0], : shape[1]]
    turn = math.radians(angle)
    along = (x - shape[1] / 2) * math.cos(turn) - (y - shape[0] / 2) * math.sin(turn)
    lightness = 50 + 60 * along / max(shape)  # CIE L*
    codes = 255 * (((lightness + 16) / 116) ** 3) ** (1 / 2.2)
    (row,) = light(np.repeat(codes.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2))
    assert angle_between(row["light_direction"], angle) < 1 and row["light_strength"] > 0.99


@pytest.mark.parametrize("at", [(0.3, 0.3), (0.7, 0.6)])
@pytest.mark.parametrize("radius", [0.12, 0.25])
def test_a_sphere_before_a_gradient_or_a_blurred_scene_gives_its_own_direction(at, radius):
    y, x = np.mgrid[:224, :299]
    scene = LINEAR[cv2.GaussianBlur(cv2.resize(photo("flower.jpg")[..., 1], (299, 224)), (0, 0), 12)]
    walls, angles = (0.15 + 0.4 * x / 299, 0.5 - 0.3 * y / 224, scene), (10, 130, 250)
    tried = [(wall, angle) for wall in walls for angle in angles]
    rows = light(*(ball(224, 299, angle, at=at, radius=radius, wall=wall) for wall, angle in tried))
    found = [(row["light_direction"], angle) for row, (_, angle) in zip(rows, tried, strict=True)]
    assert all(angle_between(told, angle) < 5 for told, angle in found if told is not None)
    assert sum(told is not None for told, _ in found) >= 6


@pytest.mark.parametrize("angle", [45, 90, 270])
def test_a_head_cut_out_round_tells_no_direction(angle):
    """Its slopes were 40 to 90 degrees off: brow, nose and cheeks are in it, and the light of the photo."""
    image = full_photo("grace_hopper.jpg")
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    right, up = (x - 267) / 134, (208 - y) / 170
    inside, depth = np.hypot(right, up) < 1, np.sqrt(np.clip(1 - right**2 - up**2, 0, 1))
    lit = 0.8 * (math.cos(math.radians(angle)) * right + math.sin(math.radians(angle)) * up) + 0.6 * depth
    cut = np.where(inside[..., None], image, 120).astype(np.uint8)
    made = gain(cut, np.where(inside, 0.1 + 0.9 * lit.clip(0, 1), 0.5)[..., None])
    assert light(made)[0]["light_direction"] is None


def test_a_lamp_lights_a_face_but_its_direction_is_not_told_by_it():
    """Hair, brow and chin are no solid that is known: no direction, rather than one that is 10 to 60 degrees off."""
    face = photo("grace_hopper.jpg")
    y, x = np.mgrid[-1 : 1 : face.shape[0] * 1j, -1 : 1 : face.shape[1] * 1j]
    for angle in range(0, 360, 60):
        across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        shade = 0.6 + 0.6 * (x * across - y * up) * (x**2 + y**2 < 0.6)
        assert light(gain(face, shade.clip(0.1)[..., None]))[0]["light_direction"] is None


# Any pixels


images = hnp.arrays(np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40), st.just(3)))
RANGES = {
    "exposure": (-40, 2.48),
    "clipped_shadows": (0, 1),
    "clipped_highlights": (0, 1),
    "contrast": (0, 0.5),
    "dynamic_range": (0, 11.69),
    "colour_temperature": (2000, 12500),
    "tint": (-0.05, 0.05),
    "light_direction": (0, 359.9999),
    "light_strength": (0, 1),
}


@given(st.lists(images, max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_pixels_give_numbers_in_range_and_the_same_in_any_company(batch):
    rows = light(*batch)
    assert len(rows) == len(batch)
    assert rows == [light(image)[0] for image in batch]
    for row in rows:
        assert row["lighting_key"] in ("low-key", "mid-key", "high-key")
        for name, (low, high) in RANGES.items():
            assert row[name] is None or low <= row[name] <= high, name
    always = ("clipped_shadows", "clipped_highlights", "contrast", "dynamic_range", "light_strength")
    assert all(row[name] is not None for row in rows for name in always)
    assert [row["exposure"] is None for row in rows] == [not image.any() for image in batch]


def test_the_arrow_points_to_the_light():
    ramp = np.linspace(40, 200, 300).astype(np.uint8)[None, :, None].repeat(224, 0).repeat(3, 2)
    (row,) = light(ramp)
    x0, y0, x1, y1 = Lighting().draw(row).lines[0]
    assert (x0, y0) == (0.5, 0.5) and x1 > 0.8 and y1 == pytest.approx(0.5, abs=0.01)
    assert "mid-key" in Lighting().draw(row).caption
    assert Lighting().draw(dict.fromkeys(row)) is None


def test_very_dark_frames_have_exposures_of_their_own():
    """One white pixel in more and more black ones: a sixteenth of the light is four stops."""
    frames = [np.zeros((side, side, 3), np.uint8) for side in (50, 100, 200)]
    for frame in frames:
        frame[0, 0] = 3
    first, second, third = (row["exposure"] for row in light(*frames))
    assert first == pytest.approx(np.log2(3 / 255 / 12.92 / 2500 / 0.18), abs=0.02)
    assert (second - first, third - first) == pytest.approx((-2, -4), abs=1e-4)
