"""Faces beside a GPU: crops, views and suppression of all images at once equal those of each face on the host."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from framekiln.contract.placement import Placement
from framekiln.device import untimed
from framekiln_stages.faces.aligned_faces import aligned
from framekiln_stages.faces.alignment import (
    SIDE,
    TEMPLATE,
    align_face,
    luma_on_device,
    sharpness,
    sharpness_on_device,
    similarity_transforms,
    thumbnail,
    thumbnail_on_device,
)
from framekiln_stages.nets.faces import yunet_cells
from framekiln_stages.nets.faces.second_look import VIEW, _cut_view, views_on_device
from framekiln_stages.nets.faces.yunet_cells import Cells, face_rows, suppressed
from framekiln_stages.shared import device_images
from framekiln_stages.shared.device_images import DeviceImages
from tests.support.media.photos import photo
from tests.support.stages.faces.faces_factory import call, embedding, made_files, portraits, speakers

SHAPES = [(600, 512), (427, 640), (600, 512), (3, 5)]


def images():
    flower = photo("flower.jpg")
    return [photo("grace_hopper.jpg")[:600, :512], flower[:427, :640], photo("china.jpg")[:600, :512], flower[:3, :5]]


def turned_faces(count):
    """Return the transforms of faces of many sizes and angles, some of them beyond an edge, and their images."""
    random = np.random.default_rng(1)
    angles, sizes = random.uniform(-3, 3, count), np.exp(random.uniform(-1.5, 2.5, count))
    turns = np.stack([[np.cos(a), -np.sin(a), np.sin(a), np.cos(a)] for a in angles]).reshape(-1, 2, 2)
    points = (TEMPLATE - 56) @ turns.transpose(0, 2, 1) * sizes[:, None, None] + random.uniform(0, 500, (count, 1, 2))
    return similarity_transforms(points.astype(np.float32)), random.integers(0, len(SHAPES), count)


@pytest.mark.parametrize("part", [device_images.PART_PIXELS, 1])
def test_aligned_faces_equal_those_of_the_host(part, monkeypatch):
    monkeypatch.setattr(device_images, "PART_PIXELS", part)
    transforms, owners = turned_faces(150)
    own = images()
    found = aligned(DeviceImages(own, Placement()), owners, transforms).numpy()
    expected = np.stack([align_face(own[i], transform) for i, transform in zip(owners, transforms, strict=True)])
    difference = np.abs(found.astype(int) - expected)
    assert expected.any(axis=(1, 2, 3)).sum() > 100
    assert difference.max() <= 2 and (difference > 0).mean() < 0.002


def test_sharpness_and_thumbnails_equal_those_of_the_host():
    crops = np.stack([photo("flower.jpg")[i : i + SIDE, 2 * i : 2 * i + SIDE] for i in range(0, 90, 30)])
    expected = [sharpness(crop) for crop in crops]
    luma = luma_on_device(torch.from_numpy(crops))
    assert sharpness_on_device(luma).tolist() == pytest.approx(expected, rel=1e-3)
    assert np.abs(thumbnail_on_device(luma).numpy() - [thumbnail(crop) for crop in crops]).max() <= 1


def test_views_equal_those_of_the_host():
    random = np.random.default_rng(2)
    sides = np.concatenate([random.integers(3, VIEW, 20), random.integers(VIEW, 700, 20), [VIEW]])
    squares = np.column_stack([random.integers(-100, 500, (41, 2)), sides])
    own, owners = images(), random.integers(0, len(SHAPES), 41)
    found = views_on_device(DeviceImages(own, Placement()), owners, squares).numpy()
    expected = np.stack([_cut_view(own[i], *square) for i, square in zip(owners, squares.tolist(), strict=True)])
    assert expected.any(axis=(1, 2, 3)).sum() > 20
    assert np.abs(found.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("seed", range(4))
def test_suppression_equals_that_of_opencv(seed):
    random = np.random.default_rng(seed)
    boxes = np.trunc(np.concatenate([random.uniform(0, 90, (3, 60, 2)), random.uniform(4, 40, (3, 60, 2))], axis=2))
    valid = random.uniform(size=(3, 60)) < 0.8
    kept, settled = suppressed(torch.from_numpy(boxes).float(), torch.from_numpy(valid), 60)
    assert settled.all()
    scores = np.linspace(0.9, 0.5, 60)
    for own, is_valid, is_kept in zip(boxes, valid, kept.numpy(), strict=True):
        numbers = np.flatnonzero(is_valid)
        best = cv2.dnn.NMSBoxes(own[numbers].tolist(), scores[numbers].tolist(), 0.0, 0.3)
        assert np.flatnonzero(is_kept).tolist() == sorted(numbers[best].tolist())


def test_a_chain_of_overlaps_and_a_crowd_take_further_rounds():
    """Every second box of a chain stays, which takes a round each; more cells pass than are decoded at first."""
    side, length = 320, 40
    cells = torch.zeros(1, 40 * 40 + 20 * 20 + 10 * 10, 16)
    for row in range(0, 40, 4):
        chain = torch.arange(length) + row * length
        cells[0, chain, :2] = torch.linspace(0.95, 0.9, length)[:, None]
        cells[0, chain, 4:6] = np.log(2.1)  # 16.8 px wide, 8 px apart: neighbours overlap by 0.35
    (rows,) = face_rows([Cells(cells, (side, side))], 0.5, untimed)
    assert len(rows) == 10 * length / 2
    assert sorted(set(np.rint(np.diff(np.unique(rows[:, 0]))))) == [16]


@pytest.mark.parametrize("settles", [True, False])
def test_an_input_without_faces_has_no_rows_also_where_a_broken_device_never_settles(monkeypatch, settles):
    if not settles:
        monkeypatch.setattr(yunet_cells, "suppressed", lambda _, valid, __: (valid, torch.zeros(len(valid)) > 0))
    rows = face_rows([Cells(torch.full((2, 21, 16), float("nan")), (1, 1))], 0.5, untimed)
    assert [len(own) for own in rows] == [0, 0]


@pytest.mark.heavy
def test_faces_beside_a_gpu_equal_those_of_the_host(make_stage, networks, images):
    pictures, least = images, 6
    if networks != made_files():
        pictures, least = [*images, *portraits().values(), *(clip[0] for clip in speakers().values())], 18
    settings = {"runtime": "torch", "embedding": "float32", "keep_crops": True}
    by_host, on_device = (call(make_stage(on_device=way, **settings), *pictures) for way in (False, True))
    assert on_device["face_count"].to_pylist() == by_host["face_count"].to_pylist()
    assert sum(by_host["face_count"].to_pylist()) >= least
    pairs = [
        (one, other)
        for rows in zip(by_host["faces"].to_pylist(), on_device["faces"].to_pylist(), strict=True)
        for one, other in zip(*rows, strict=True)
    ]
    for one, other in pairs:
        assert embedding(one) @ embedding(other) > 0.9999
        assert other["box"] == pytest.approx(one["box"], abs=1e-5)
        assert other["quality"] == pytest.approx(one["quality"], rel=0.01)
    worst = min(float(embedding(one) @ embedding(other)) for one, other in pairs)
    print(f"{len(pairs)} faces, least cosine {worst:.6f}")
