"""Looks at parts of an image: they cover it, find small people, take nothing for a person, and doubt blur."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.contract.placement import Placement
from framekiln_stages.pose.looks import distances, look, second_look, tiles
from framekiln_stages.pose.stage import Pose
from tests.support.media.photos import photo
from tests.support.stages.pose_factory import clip, model_file

MODEL = "pose_landmarker_full_bundled"


def made(**settings_):
    stage = Pose(Pose.Config(model=MODEL, **settings_))
    stage.setup({MODEL: model_file(MODEL)}, Placement())
    return stage


@pytest.fixture(scope="module")
def pose():
    return made()


def small_people():
    """A scene with four portraits of a fifth of its height: the image, and their middles."""
    scene = cv2.resize(photo("china.jpg"), (768, 512), interpolation=cv2.INTER_AREA)
    middles = [(192, 150), (560, 150), (220, 390), (580, 390)]
    portrait = photo("grace_hopper.jpg")
    for way, (x, y) in zip((1, -1, 1, -1), middles, strict=True):
        person = cv2.resize(portrait[:, ::way], (85, 100), interpolation=cv2.INTER_AREA)
        height, width = person.shape[:2]
        scene[y - height // 2 :, x - width // 2 :][:height, :width] = person
    return scene, middles


def test_small_people_whom_the_whole_image_does_not_show_are_found_once(pose):
    scene, middles = small_people()
    found = pose.find(scene).body
    centres = found[..., :2].mean(1) * scene.shape[1::-1]
    near = [(np.hypot(*(centres - middle).T) < 60).sum() for middle in middles]
    assert near == [1, 1, 1, 1]
    assert len(found) == 4
    assert len(made(tile=0.0).find(scene).body) < 2


def test_a_couple_is_two(pose):
    """The whole image shows one of two who stand close."""
    portrait = photo("grace_hopper.jpg")
    couple = np.hstack([portrait[:, :452], portrait[:, ::-1][:, 60:]])
    assert len(pose.find(couple).body) == 2
    assert len(made(tile=0.0).find(couple).body) == 1


@pytest.mark.parametrize(
    ("name", "part"),
    [("china.jpg", np.s_[:]), ("china.jpg", np.s_[64:298, 96:544]), ("flower.jpg", np.s_[:])],
    ids=["china", "roofs", "flower"],
)
def test_what_a_tile_takes_for_a_person_is_not_found_again(pose, name, part):
    image = photo(name)[part]
    scale = 512 / min(image.shape[:2])
    image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    in_tiles = sum(len(look(pose._net, image, tile)[0]) for tile in tiles(*image.shape[:2], 0.5))
    assert in_tiles >= 1
    assert len(pose.find(image).body) == 0


def test_a_pose_on_blur_is_unknown_with_a_reason(pose):
    sharp = np.ascontiguousarray(photo("grace_hopper.jpg")[90:510, 76:])
    (known,) = pose.find(sharp).body
    blur = cv2.filter2D(sharp, -1, np.full((1, 55), 1 / 55, np.float32), borderType=cv2.BORDER_REPLICATE)
    rows = [row for image in (sharp, blur) for row in pose(clip(pose, [image])).to_pylist()]
    assert [len(row["poses_unknown"]) for row in rows] == [0, 1]
    assert [row["people"] for row in rows] == [1, 0]
    assert rows[1]["poses_unknown"][0]["reason"] in {"not_seen_again", "looks_disagree"}
    raw, _ = pose._net(blur)
    assert distances(known, raw, *sharp.shape[:2]).min() > 0.1  # MediaPipe's own pose is wrong


def test_a_second_look_at_nobody_is_infinitely_far(pose):
    body, _ = pose._net(photo("grace_hopper.jpg"))
    assert second_look(pose._net, photo("china.jpg"), body[0], 0.1).distance == np.inf


@settings(max_examples=60, deadline=None)
@given(height=st.integers(1, 900), width=st.integers(1, 900), share=st.floats(0, 1))
def test_tiles_cover_the_image_and_overlap(height, width, share):
    parts = list(tiles(height, width, share))
    if not parts:
        assert int(min(height, width) * share) < 24
        return
    side = parts[0].side
    for axis, length in ((0, width), (1, height)):
        starts = sorted({part[axis] for part in parts})
        assert (starts[0], starts[-1]) == (0, length - side)
        assert max(np.diff(starts), default=0) <= side * 2 / 3 + 1
