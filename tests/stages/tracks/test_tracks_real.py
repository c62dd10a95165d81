"""Tracks of real people, whom the real network found: one id each, over pans and crossings."""

from __future__ import annotations

import cv2
import numpy as np
import pyarrow as pa
import pytest

from framekiln.contract.errors import WeightsError
from framekiln.contract.placement import Placement
from framekiln.weights.resolver import resolve
from framekiln_stages.pose.stage import Pose
from framekiln_stages.tracks.stage import Tracks
from tests.support.media.material import picture
from tests.support.media.photos import photo
from tests.support.stages.faces.people_factory import batch, owners, shots
from tests.support.stages.pose_factory import clip


@pytest.fixture(scope="module")
def pose():
    try:
        found = resolve(["pose_landmarker_full_bundled"], weights_dir=None)
    except WeightsError as error:
        pytest.skip(str(error))
    stage = Pose(Pose.Config(max_people=3, tile=0))  # tiles change no id here, and take ten times as long
    stage.setup(found, Placement())
    return stage


def centre(person):
    return (person["box"]["x0"] + person["box"]["x1"]) / 2


def sized(found, height, width):
    """A batch of poses in frames of this size."""
    whole = batch(found.combine_chunks())
    for name, side in (("height", height), ("width", width)):
        whole = whole.set_column(whole.column_names.index(name), name, pa.array([side] * len(whole), pa.int32()))
    return whole


@pytest.mark.heavy
def test_a_real_person_panned_then_mirrored_after_a_cut_has_one_id_a_shot(pose):
    image = photo("grace_hopper.jpg")
    height, width = image.shape[:2]
    wide = cv2.copyMakeBorder(image, 0, 0, 80, 80, cv2.BORDER_REPLICATE)
    views = [wide[:, 6 * i : 6 * i + width] for i in range(12)]
    views += [np.ascontiguousarray(view[:, ::-1]) for view in views]
    found = pose(clip(pose, [np.ascontiguousarray(view) for view in views], fps=25))["poses"]
    made = Tracks()(sized(found, height, width), shots(0, 12, frames=24))
    summary = made["track_summary"].to_pylist()
    assert [(s["shot"], s["frames"], s["missing"]) for s in summary] == [(0, 12, 0), (1, 12, 0)]
    # The camera moves by 6 px a frame, so that everybody else does.
    xs = [np.mean([mark["x"] * width for mark in row["landmarks"]]) for row in made["tracks"].to_pylist()[:12]]
    assert np.diff(xs)[4:].mean() == pytest.approx(-6, abs=1.5)
    assert all(s["jitter_smoothed"] < s["jitter"] for s in summary)


@pytest.mark.heavy
def test_two_real_people_side_by_side_who_trade_places_in_the_list_keep_their_ids(pose):
    image = photo("grace_hopper.jpg")
    height, width = image.shape[:2]
    frames = []
    for i in range(10):
        light = 0.6 + 0.08 * i  # one darkens while the other brightens, so that the more visible one changes
        pair = [image * light, image[:, ::-1] * (1.92 - light)]
        frames.append(np.hstack([np.roll(one, 4 * i, axis=1).clip(0, 255).astype(np.uint8) for one in pair]))
    found = pose(clip(pose, frames, fps=25))["poses"]
    sides = [["left" if centre(p) < 0.5 else "right" for p in people] for people in found.to_pylist()]
    made = Tracks()(sized(found, height, 2 * width), shots(0, frames=10))
    assert sorted(map(sorted, owners(made["tracks"].to_pylist(), sides).values())) == [["left"], ["right"]]
    assert sum(s["frames"] for s in made["track_summary"].to_pylist()) == sum(map(len, sides))


def apart(number):
    """Two real people on one grey wall, who walk through each other's places: the picture of one frame."""
    image = cv2.resize(picture("pose/squat.bmp"), None, fx=0.6, fy=0.6, interpolation=cv2.INTER_AREA)
    height, width = image.shape[:2]
    wall = np.full((height, 3 * width, 3), 128, np.uint8)
    for person, x in ((image[:, ::-1], 2 * width - 2 * width * number // 29), (image, 2 * width * number // 29)):
        wall[:, x : x + width] = person
    return wall


@pytest.mark.heavy
def test_two_real_people_who_cross_keep_their_ids(pose):
    frames = [apart(i) for i in range(30)]
    height, width = frames[0].shape[:2]
    found = pose(clip(pose, frames, fps=25))["poses"]
    made = Tracks()(sized(found, height, width), shots(0, frames=30))["tracks"].to_pylist()
    boxes = found.to_pylist()
    ids = [
        {("left" if centre(boxes[i][row["pose_index"]]) < 0.5 else "right"): row["track"]
         for row in made if row["frame_index"] == i and row["pose_index"] is not None}
        for i in range(30)
    ]  # fmt: skip
    early = {side: {ids[i][side] for i in range(8) if side in ids[i]} for side in ("left", "right")}
    late = {side: {ids[i][side] for i in range(22, 30) if side in ids[i]} for side in ("left", "right")}
    assert len(early["left"]) == len(early["right"]) == 1 and early["left"] != early["right"]
    assert (late["right"], late["left"]) == (early["left"], early["right"])
    assert {row["track"] for row in made} == {0, 1}
