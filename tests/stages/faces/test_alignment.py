"""Face alignment: the transform, the crop and the angles of a head, each against independent values."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln_stages.faces.alignment import (
    NOSE_DEPTH,
    SIDE,
    TEMPLATE,
    align_face,
    crop_scales,
    head_angles,
    sharpness,
    similarity_transforms,
)
from tests.support.media.photos import photo


def scaled(image, factor):
    way = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    return cv2.resize(image, None, fx=factor, fy=factor, interpolation=way)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 999), angle=st.floats(-180, 180), scale=st.floats(0.05, 20), noise=st.floats(0, 20))
def test_the_similarity_is_the_least_squares_one(seed, angle, scale, noise):
    random = np.random.default_rng(seed)
    turn = np.radians(angle)
    rotation = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    points = (TEMPLATE @ rotation.T + random.uniform(-500, 500, 2) + random.normal(0, noise * scale, (5, 2)))[None]
    x, y = points[0].T
    rows = np.concatenate([np.stack([x, -y, x * 0 + 1, x * 0], 1), np.stack([y, x, x * 0, x * 0 + 1], 1)])
    a, b, c, d = np.linalg.lstsq(rows, TEMPLATE.T.reshape(-1), rcond=None)[0]
    assert np.allclose(similarity_transforms(points)[0], [[a, -b, c], [b, a, d]], atol=1e-6)


def test_points_that_coincide_have_a_finite_transform():
    transform = similarity_transforms(np.full((1, 5, 2), 7, np.float32))
    assert np.isfinite(transform).all()
    assert align_face(np.zeros((20, 20, 3), np.uint8), transform[0]).shape == (SIDE, SIDE, 3)


@pytest.mark.parametrize("factor", [0.7, 1.6, 2.4, 3.5, 5.0])
def test_crops_of_a_face_agree_at_any_size(factor):
    image = photo("grace_hopper.jpg")
    points = np.array([[[220, 175], [300, 178], [262, 225], [228, 262], [296, 264]]], np.float32)
    large = (points + 0.5) * factor - 0.5  # centres of pixels
    one = align_face(image, similarity_transforms(points)[0]).astype(float)
    other = align_face(scaled(image, factor), similarity_transforms(large.astype(np.float32))[0]).astype(float)
    assert np.abs(one - other).mean() < 4
    shifted = np.abs(one[:, 1:] - other[:, :-1]).mean()
    assert np.abs(one - other).mean() < 0.8 * shifted, "half a pixel off"


def test_fine_detail_is_averaged():
    noise = np.random.default_rng(0).integers(0, 256, (600, 600, 3), dtype=np.uint8)
    large = align_face(noise, similarity_transforms((TEMPLATE[None] * 4 + 20).astype(np.float32))[0])
    assert large.std() < 0.4 * noise.std()  # a quarter by averages of 4 by 4
    assert abs(large.mean() - noise.mean()) < 2


def test_crops_are_black_outside_the_image():
    image = np.full((400, 400, 3), 200, np.uint8)
    for size in (1, 4):
        inside = align_face(image, similarity_transforms((TEMPLATE[None] * size - [50, 0]).astype(np.float32))[0])
        assert (inside[60, :5] == 0).all()
        assert (inside[60, 100:] == 200).all()
        assert align_face(image, similarity_transforms((TEMPLATE[None] * size + 5000).astype(np.float32))[0]).max() == 0


@pytest.mark.parametrize("size", [2.1, 3.3, 4.9, 6.7])
@pytest.mark.parametrize("place", [100, 103.5, 107])
def test_crops_within_the_image_have_no_dark_edge(size, place):
    """An average at the edge of a crop lies partly beyond its corners."""
    image = np.full((1000, 1000, 3), 200, np.uint8)
    crop = align_face(image, similarity_transforms((TEMPLATE[None] * size + place).astype(np.float32))[0])
    assert (crop == 200).all()


@settings(max_examples=60, deadline=None)
@given(yaw=st.floats(-60, 60), pitch=st.floats(-40, 40), roll=st.floats(-30, 30), scale=st.floats(0.1, 10))
def test_angles_of_a_turned_head_are_recovered(yaw, pitch, roll, scale):
    head = np.concatenate([TEMPLATE - TEMPLATE.mean(0), [[0], [0], [-NOSE_DEPTH], [0], [0]]], axis=1)
    y, x, z = np.radians([yaw, pitch, roll])
    about_y = np.array([[np.cos(y), 0, -np.sin(y)], [0, 1, 0], [np.sin(y), 0, np.cos(y)]])  # the nose goes right
    about_x = np.array([[1, 0, 0], [0, np.cos(x), np.sin(x)], [0, -np.sin(x), np.cos(x)]])  # the nose goes up
    about_z = np.array([[np.cos(z), -np.sin(z)], [np.sin(z), np.cos(z)]])
    seen = (head @ (about_y @ about_x).T)[:, :2] @ about_z.T
    found_yaw, found_pitch = (float(value[0]) for value in head_angles((seen[None] * scale + 300).astype(np.float32)))
    assert abs(found_yaw - yaw) < 0.1
    assert abs(found_pitch - pitch) < 0.1


def test_the_template_itself_looks_straight_ahead():
    yaw, pitch = head_angles(TEMPLATE[None].astype(np.float32))
    assert max(abs(float(yaw[0])), abs(float(pitch[0]))) < 0.01
    assert crop_scales(similarity_transforms(TEMPLATE[None].astype(np.float32) * 4))[0] == pytest.approx(0.25)


def test_sharpness_is_the_variance_of_the_laplacian():
    board = np.zeros((SIDE, SIDE, 3), np.uint8)
    assert sharpness(board) == 0
    board[:, ::2] = 10
    assert sharpness(board) == pytest.approx(400, rel=0.01)  # alternating plus and minus 20
