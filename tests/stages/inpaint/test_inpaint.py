"""Inpainting: pixels outside the mask stay bit-identical, all pixels inside are replaced.

The weights are random, so the quality of the result is not tested.
"""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt

from framekiln_stages.inpaint.stage import Inpaint
from tests.support.media.photos import photo
from tests.support.stages.inpaint_factory import (
    COLOUR,
    MASKS,
    grown,
    make,
    network,
    noise,
    paint,
    rectangle,
    table,
    values,
)


def test_a_real_photo_is_bit_identical_outside_the_mask_and_changes_inside():
    image = photo("flower.jpg").copy()
    mask = image[:, :, 0].astype(int) - image[:, :, 2] > 60  # the orange of the blossom
    for config in ({}, {"feather": 0}, {"max_side": 128}, {"dilate": 0, "feather": 0}):
        painted, share = paint(network(**config), image, mask)
        inside = grown(mask, config.get("dilate", 8))
        assert (painted[~inside] == image[~inside]).all()
        assert (painted[mask] != image[mask]).any(axis=1).mean() > 0.98, "random weights may hit a colour by chance"
        assert share == pytest.approx(inside.mean())


@pytest.mark.parametrize(
    "config", [{}, {"feather": 0}, {"max_side": 128}, {"shapes": "many", "dilate": 2, "feather": 1}]
)
def test_whole_levels_of_a_device_paint_as_the_host(config):
    image = photo("flower.jpg")
    mask = image[:, :, 0].astype(int) - image[:, :, 2] > 60
    on_host, on_device = network(**config), network(**config)
    on_device._paint._whole = True
    (one, share), (other, same) = (paint(stage, image, mask) for stage in (on_host, on_device))
    assert share == same
    assert np.abs(one.astype(int) - other).max() <= 1
    assert (other[~grown(mask, config.get("dilate", 8))] == image[~grown(mask, config.get("dilate", 8))]).all()


@pytest.mark.parametrize("dilate", [0, 1, 3, 8, 20])
def test_all_of_the_dilated_mask_is_replaced_and_nothing_else(dilate):
    image, mask = noise(150, 200), rectangle(150, 200, 40, 60, 100, 103)
    mask[90, 20] = True
    painted, share = paint(make(dilate=dilate, feather=0), image, mask)
    inside = grown(mask, dilate)
    assert (painted == np.where(inside[:, :, None], COLOUR.astype(np.uint8), image)).all()
    assert share == pytest.approx(inside.mean())


def test_the_feather_rises_from_the_edge_to_the_object():
    image, mask = np.full((120, 160, 3), 255, np.uint8), rectangle(120, 160, 40, 80, 0, 60)
    painted, _ = paint(make(dilate=8, feather=6), image, mask)
    inside = grown(mask, 8)
    alpha = np.minimum(1, distance_transform_edt(inside) / 7)[:, :, None]
    expected = np.rint(alpha * COLOUR + (1 - alpha) * 255)
    assert np.abs(painted.astype(float) - expected).max() <= 1
    assert (painted[mask] == COLOUR).all(), "no part of the object shows through, nor at the frame's edge"
    row = painted[60, 50:80, 0].astype(int)
    assert (np.diff(row) >= 0).all() and len(set(row)) > 5


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (5, 3), (8, 8), (65, 7), (100, 130)])
@pytest.mark.parametrize("kind", ["nothing", "a corner", "an edge", "everything"])
def test_frames_of_any_size_and_masks_at_any_edge(shape, kind):
    image, (height, width) = noise(*shape), shape
    window = {"nothing": (0, 0, 0, 0), "a corner": (0, 1, 0, 1), "an edge": (0, height, 0, 1)}
    mask = rectangle(*shape, *window.get(kind, (0, height, 0, width)))
    painted, share = paint(network(dilate=1, feather=1), image, mask)
    inside = grown(mask, 1)
    assert share == pytest.approx(inside.mean())
    if kind == "nothing":
        assert painted is None
    else:
        assert painted.shape == image.shape
        assert (painted[~inside] == image[~inside]).all()


@pytest.mark.heavy
@settings(max_examples=6, deadline=None)
@given(order=st.permutations(range(5)), chunk=st.integers(1, 4))
def test_neighbours_their_order_and_chunks_change_no_byte(order, chunk):
    shapes = [(90, 100), (90, 100), (3, 3), (90, 100), (140, 60)]
    frames = [noise(*shape, seed) for seed, shape in enumerate(shapes)]
    masks = [values(rectangle(*shape, 0, 30, 1, 20)) for shape in shapes]
    masks[3] = None
    stage = network(min_margin=10)
    stage.chunk_sizes["crops"] = chunk
    alone = [stage(table([frame], [mask])).to_pylist()[0] for frame, mask in zip(frames, masks, strict=True)]
    assert [row["inpainted"] is None for row in alone] == [False, False, False, True, False]
    together = stage(table([frames[i] for i in order], [masks[i] for i in order])).to_pylist()
    assert together == [alone[i] for i in order]


# The columns


def test_unpainted_frames_are_null():
    first, second, third = make()(table([noise(60, 80)] * 3, [[], None, values(MASKS[0])])).to_pylist()
    assert first == second == {"inpainted": None, "inpainted_share": 0}
    assert third["inpainted"].startswith(b"\x89PNG") and third["inpainted_share"] > 0


def test_settings_decide_the_declarations():
    assert Inpaint().inputs == ("frame", "masks")
    assert Inpaint().weights == ("big-lama",)
    stage = pickle.loads(pickle.dumps(Inpaint(Inpaint.Config(region="faces"))))
    assert stage.inputs == ("frame", "faces")
    assert stage.outputs.types == [pa.large_binary(), pa.float32()]


def test_the_caption_has_the_painted_share():
    drawing = make().draw({"inpainted": b"png", "inpainted_share": 0.123})
    assert (drawing.caption, drawing.result_image) == ("12.3% painted over", b"png")
    assert make().draw({"inpainted": None, "inpainted_share": 0.0}) is None
    assert make().draw({}) is None
