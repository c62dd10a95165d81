"""Fields of flow are kept in files as KITTI has them, and drawn in the colours of Middlebury's wheel."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from framekiln_stages.flow import flow_colors
from framekiln_stages.flow.flow_colors import decode, encode
from framekiln_stages.flow.stage import Flow
from tests.support.media.photos import photo
from tests.support.stages.flow_factory import ready, table, window


@given(
    hnp.arrays(
        np.float32, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(2)), elements=st.floats(-511, 511, width=32)
    )
)
def test_a_field_survives_the_file_within_a_64th_of_a_pixel(flow):
    again = decode(encode(flow))
    assert again.shape == flow.shape
    assert np.abs(again - flow).max() <= 1 / 64


def test_the_file_is_laid_out_as_kitti_has_it_and_marks_what_it_cannot_say():
    flow = np.array([[[1.5, -2.0], [600.0, 0.0], [np.nan, 0.0], [0.0, -np.inf]]], np.float32)
    blue, green, red = cv2.split(cv2.imdecode(np.frombuffer(encode(flow), np.uint8), cv2.IMREAD_UNCHANGED))
    assert (red[0, 0], green[0, 0]) == (2**15 + 96, 2**15 - 128)
    assert blue.tolist() == [[1, 0, 0, 0]]
    again = decode(encode(flow))
    assert again[0, 0].tolist() == [1.5, -2.0] and np.isnan(again[0, 1:]).all()


@pytest.mark.parametrize("data", [b"", b"noise", cv2.imencode(".png", np.zeros((4, 4, 3), np.uint8))[1].tobytes()])
def test_another_file_is_refused(data):
    with pytest.raises(ValueError, match="KITTI"):
        decode(data)


# Drawings


def test_the_drawing_points_where_things_move():
    image = photo("china.jpg")
    row = ready()(table([window(image, 60, 60), window(image, 66, 60)])).to_pylist()
    (x0, y0, x1, y1), *_ = Flow().draw(row[0]).lines
    assert x1 < x0 and y1 == pytest.approx(y0, abs=0.02)  # the camera moves right, so the picture moves left
    assert Flow().draw(row[1]) is None


def test_colours_of_the_drawing_are_those_of_the_middlebury_wheel():
    still = np.zeros((2, 2, 2), np.float32)
    assert (flow_colors.colours(still, 1.0) == 255).all()
    moving = np.zeros((1, 5, 2), np.float32)
    moving[0] = [(1, 0), (0, 1), (-1, 0), (0, -1), (np.nan, 0)]  # right, down, left, up
    right, down, left, up, unknown = flow_colors.colours(moving, 1.0)[0].tolist()
    assert right == [255, 0, 0]  # red is where the published wheel begins
    assert down[0] == 255 and down[1] > 150 and down[2] == 0  # between yellow and red
    assert left[0] == 0 and left[1] > 200 and left[2] > 200  # about cyan
    assert up[2] == 255 and up[1] == 0 and up[0] > 50  # between blue and magenta
    assert unknown == [0, 0, 0]
    half, fast = flow_colors.colours(np.array([[[0.5, 0], [2, 0]]], np.float32), 1.0)[0].tolist()
    assert half == [255, 127, 127] and fast == [191, 0, 0]


def test_the_drawing_shows_the_field_where_it_was_kept_and_else_the_mean():
    image = photo("china.jpg")
    row = ready(cache=True)(table([window(image, 60, 60), window(image, 66, 60)])).to_pylist()[0]
    whole, mean = (
        cv2.imdecode(np.frombuffer(drawing.overlay, np.uint8), cv2.IMREAD_UNCHANGED)
        for drawing in (Flow().draw(row), Flow().draw({**row, "flow_field": None}))
    )
    assert whole.shape[2] == 4 and min(whole.shape[:2]) > 100 and mean.shape == (1, 1, 4)
    for blue, green, red in (whole[..., :3].reshape(-1, 3).mean(axis=0), mean[0, 0, :3]):
        assert blue > red and green > red  # to the left: about cyan
    legend = Flow().draw(row).legend
    assert "wheel" in legend.text and legend.image.startswith(b"\x89PNG")
