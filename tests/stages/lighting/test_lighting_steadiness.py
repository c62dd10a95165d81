"""Steadiness of light: a jump is found where and as large as it is, and a ramp or a gap is none."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from framekiln_stages.lighting.stage import Lighting, Steadiness
from tests.support.stages.lighting_factory import even_scene, gain, light, photo


def clip(frames: list[np.ndarray]) -> pa.Table:
    """What Lighting says of frames, as Steadiness reads it."""
    rows = light(*frames)
    keys = {
        "media_id": pa.array(["a.mp4"] * len(rows), pa.string()),
        "frame_index": pa.array(range(len(rows)), pa.int32()),
        "time_s": pa.array([i / 25 for i in range(len(rows))], pa.float64()),
    }
    names = Steadiness().inputs[3:]
    return pa.table(
        keys | {name: pa.array([row[name] for row in rows], Lighting().outputs.field(name).type) for name in names}
    )


def steadiness(table: pa.Table, **config) -> tuple[list[dict], list[dict]]:
    stage = Steadiness(Steadiness.Config(**config))
    out = stage(table)
    assert {name: part.schema for name, part in out.items()} == {
        name: part.schema for name, part in stage.tables.items()
    }
    return out["lighting_steadiness"].to_pylist(), out["lighting_jumps"].to_pylist()


def grainy(image: np.ndarray, by: list) -> list[np.ndarray]:
    """The photo under each of these lights, each with grain of its own, as a camera gives."""
    noise_of = np.random.default_rng(0)
    lit = [gain(image, factor).astype(float) + noise_of.normal(0, 2, image.shape) for factor in by]
    return [np.clip(np.rint(frame), 0, 255).astype(np.uint8) for frame in lit]


@pytest.mark.parametrize("stops", [-1.0, 0.5])
def test_a_jump_of_exposure_is_found_where_and_as_large_as_it_is(stops):
    frames = grainy(photo("china.jpg"), [0.4] * 12 + [0.4 * 2**stops] * 8)
    (file,), jumps = steadiness(clip(frames))
    assert [(jump["frame_index"], jump["quantity"], jump["unit"]) for jump in jumps] == [(12, "exposure", "stop")]
    assert jumps[0]["size"] == pytest.approx(stops, abs=0.05) and jumps[0]["time_s"] == pytest.approx(12 / 25)
    assert (file["frames"], file["jumps"]) == (20, 1)
    assert file["exposure_std"] == pytest.approx(abs(stops) * math.sqrt(0.6 * 0.4), rel=0.1)


def test_a_jump_of_colour_is_found_in_mired():
    image = photo("china.jpg")
    frames = grainy(image, [0.5] * 9 + [np.array([0.5, 0.45, 0.35])] * 9)
    table = clip(frames)
    _, jumps = steadiness(table)
    assert [
        (jump["frame_index"], jump["quantity"], jump["unit"]) for jump in jumps if jump["quantity"] != "exposure"
    ] == [(9, "colour", "mired")]
    before, after = (1e6 / table["colour_temperature"][i].as_py() for i in (8, 9))
    assert jumps[-1]["size"] == pytest.approx(after - before, rel=1e-3) and jumps[-1]["size"] > 20


def test_a_lamp_that_changes_sides_is_a_jump_of_direction():
    image = even_scene()
    side = np.linspace(-1, 1, image.shape[1])[None, :, None]
    left, right = 0.5 * 2**-side, 0.5 * 2**side
    _, jumps = steadiness(clip(grainy(image, [left] * 6 + [right] * 6)))
    assert [(jump["frame_index"], jump["quantity"]) for jump in jumps] == [(6, "direction")]
    assert abs(jumps[0]["size"]) == pytest.approx(180, abs=10)


def test_directions_are_averaged_round_the_circle():
    table = clip(grainy(photo("china.jpg"), [0.5] * 4))
    index = table.schema.get_field_index("light_direction")
    near_zero = table.set_column(index, "light_direction", pa.array([359, 1, 358, 2], pa.float32()))
    (file,), jumps = steadiness(near_zero)
    assert file["direction_std"] == pytest.approx(1.58, abs=0.01) and not jumps


@pytest.mark.parametrize("last", [0.1, 0.9])
def test_a_smooth_ramp_has_spread_but_no_jump(last):
    lights = [np.array([1.0, 1.0, 1 - 0.01 * i]) * level for i, level in enumerate(np.geomspace(0.4, last, 24))]
    (file,), jumps = steadiness(clip(grainy(photo("china.jpg"), lights)))
    assert jumps == [] and file["jumps"] == 0
    assert file["exposure_std"] > 0.2 and file["consistency"] < 0.9


def test_steady_light_is_consistent_and_every_change_makes_it_less_so():
    image = photo("china.jpg")
    lights = [[0.4] * 10, [0.4] * 5 + [0.5] * 5, [0.4] * 5 + [0.8] * 5]
    shares = [steadiness(clip(grainy(image, light)))[0][0]["consistency"] for light in lights]
    assert shares[0] > 0.95
    assert shares == sorted(shares, reverse=True) and shares[2] < 0.9


def test_a_photo_has_a_row_without_spreads():
    (file,), jumps = steadiness(clip([photo("china.jpg")]))
    assert jumps == [] and (file["frames"], file["jumps"]) == (1, 0)
    assert {file[name] for name in ("exposure_std", "colour_std", "direction_std", "consistency")} == {None}
    assert steadiness(clip([])) == ([], [])


def test_frames_without_values_are_passed_over():
    table = clip(grainy(photo("china.jpg"), [0.4] * 8 + [0.8] * 8))
    gaps = [None if i in (3, 4) else value for i, value in enumerate(table["exposure"].to_pylist())]
    holes = table.set_column(table.schema.get_field_index("exposure"), "exposure", pa.array(gaps, pa.float32()))
    _, jumps = steadiness(holes)
    assert [(jump["frame_index"], jump["quantity"]) for jump in jumps] == [(8, "exposure")]
    nothing = holes.set_column(holes.schema.get_field_index("exposure"), "exposure", pa.nulls(16, pa.float32()))
    assert steadiness(nothing)[0][0]["exposure_std"] is None


def test_black_frames_count_as_the_darkest_light_and_a_fade_into_them_is_no_row_of_jumps():
    lit = clip(grainy(photo("china.jpg"), [0.4] * 6) + [np.zeros_like(photo("china.jpg"))] * 6)
    assert lit["exposure"].null_count == 6
    (file,), jumps = steadiness(lit)
    assert [(jump["frame_index"], jump["quantity"]) for jump in jumps if jump["quantity"] == "exposure"] == [
        (6, "exposure")
    ]
    assert file["exposure_std"] is not None
