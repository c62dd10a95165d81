"""Pose: real people in real photos, where COCO's annotators have them, and results that depend on the picture alone."""

from __future__ import annotations

import json
import pickle

import av
import cv2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framekiln.contract.placement import Placement
from framekiln.media import samples
from framekiln_stages.nets.mediapipe_tasks import BlazePose
from framekiln_stages.pose.stage import DRAWN, LANDMARKS, Pose
from framekiln_stages.shared.skeleton import BONES, COCO_17, MIRRORED
from framekiln_stages.tracks.tracking import SIGMAS
from tests.support.media.material import media, picture, where_present
from tests.support.media.photos import PHOTOS, photo
from tests.support.stages.faces.people_factory import poses, standing
from tests.support.stages.pose_factory import clip, model_file

_LIMBS = ("shoulder", "elbow", "wrist", "hip", "knee", "ankle")
COCO_KEYPOINTS = ["nose", *(f"{side}_{part}" for part in ("eye", "ear", *_LIMBS) for side in ("left", "right"))]


def make(model, **settings_):
    stage = Pose(Pose.Config(model=model, **settings_))
    stage.setup({model: model_file(model)}, Placement())
    return stage


LITE = where_present("pose_landmarker_lite.task", "pose_landmarker_lite_zipped")


@pytest.fixture(scope="module", params=["pose_landmarker_full_bundled", *LITE])
def pose(request):
    return make(request.param)


def call(stage, *images):
    """The results of photos: each is a clip of its own."""
    return pa.concat_tables(stage(clip(stage, [image])) for image in images)


def points(person):
    """Landmarks as x, y: 33 2, shares of the picture."""
    return np.array([(mark["x"], mark["y"]) for mark in person["landmarks"]])


def world_of(person):
    """Landmarks in metres, 33 3."""
    return np.array([list(mark.values()) for mark in person["world"]])


def oks(predicted, annotation):
    """Object keypoint similarity, as COCO defines it: predicted 17 2 in px; over the annotated keypoints."""
    truth = np.array(annotation["keypoints"], float).reshape(17, 3)
    squared = ((predicted - truth[:, :2]) ** 2).sum(1)
    similarity = np.exp(-squared / (2 * annotation["area"] * (2 * SIGMAS) ** 2))
    return similarity[truth[:, 2] > 0].mean()


def coco():
    annotation = json.loads(media("pose/coco/coco_785.json").read_text())
    return picture("pose/coco/000000000785.jpg"), annotation


# Meaning


def test_landmarks_agree_with_coco_annotation(pose):
    image, truth = coco()
    (person,) = call(pose, image)["poses"][0].as_py()
    predicted = points(person)[list(COCO_17)] * image.shape[1::-1]
    assert oks(predicted, truth["annotations"][0]) > 0.8  # .91 full, .86 lite; .5 is COCO's loosest match
    x, y, width, height = truth["annotations"][0]["bbox"]
    box = np.array(list(person["box"].values())) * np.tile(image.shape[1::-1], 2)
    assert np.abs(box - [x, y, x + width, y + height]).max() < 0.1 * np.hypot(width, height)
    world = world_of(person)
    assert 0.25 < np.linalg.norm(world[23] - world[25]) < 0.6  # an adult's femur is about .45 m
    assert world[0, 1] < world[23, 1] < world[27, 1]  # the nose above the hips above the ankles


def test_the_measure_itself_can_say_no():
    keypoints = standing(200)[list(COCO_17)]
    low, high = keypoints.min(0), keypoints.max(0)
    annotation = {"keypoints": np.column_stack([keypoints, [2] * 17]).ravel(), "area": (high - low).prod()}
    annotation["bbox"] = [*low, *(high - low)]
    assert oks(keypoints, annotation) == 1
    assert oks(keypoints + np.array([annotation["bbox"][2], 0]), annotation) < 0.05  # beside her


def test_people_are_counted(pose):
    assert call(pose, *map(photo, PHOTOS))["people"].to_pylist() == [name == "grace_hopper.jpg" for name in PHOTOS]


def test_people_of_any_size_are_counted(pose):
    portrait = photo("grace_hopper.jpg")
    sizes = [cv2.resize(portrait, None, fx=by, fy=by, interpolation=cv2.INTER_AREA) for by in (0.25, 0.5, 2)]
    amid = [cv2.copyMakeBorder(portrait, *[by] * 4, cv2.BORDER_REPLICATE) for by in (150, 600)]
    nobody = [photo(name)[::2, ::2] for name in ("china.jpg", "flower.jpg")]
    assert call(pose, *sizes, *amid, *nobody)["people"].to_pylist() == [1] * 5 + [0, 0]


def test_two_people_side_by_side_are_two_and_the_more_visible_comes_first(pose):
    portrait = photo("grace_hopper.jpg")
    people = call(pose, np.hstack([portrait, portrait]))["poses"][0].as_py()
    assert sorted(person["box"]["x0"] + person["box"]["x1"] > 1 for person in people) == [False, True]
    assert [person["score"] for person in people] == sorted((person["score"] for person in people), reverse=True)


def test_a_mirrored_picture_gives_mirrored_people(pose):
    hopper = photo("grace_hopper.jpg")
    (person,), (mirrored,) = (people.as_py() for people in call(pose, hopper, hopper[:, ::-1])["poses"])
    back, seen = points(mirrored) * [-1, 1] + [1, 0], slice(13)  # the rest of him is outside of the photo
    assert np.abs(back[list(MIRRORED)] - points(person))[seen].mean() < 0.02
    assert np.abs(back - points(person))[seen].mean() > 0.05  # left and right change places


@pytest.mark.parametrize(("quarters", "degrees"), [(0, 0), (1, 270), (2, 180), (3, 90)])
def test_people_are_found_whichever_way_up_the_picture_is(pose, quarters, degrees):
    (person,) = call(pose, np.rot90(photo("grace_hopper.jpg"), quarters))["poses"][0].as_py()
    assert person["orientation"] == degrees


@pytest.mark.parametrize("number", [57, 66])
def test_a_darkened_pagoda_is_nobody(pose, number, tmp_path):
    frames = samples.dim(samples.pan(photo("china.jpg"), 75))
    samples.write_clip(tmp_path / "out.mp4", frames, samples.tone(3, 330))
    with av.open(str(tmp_path / "out.mp4")) as file:
        frame = next(f for i, f in enumerate(file.decode(video=0)) if i == number).to_ndarray(format="rgb24")
    assert frame.mean() < 64
    assert call(pose, frame)["people"].to_pylist() == [0]


@pytest.mark.parametrize("light", [0.5, 0.3, 0.15])
def test_somebody_in_the_dark_is_found(pose, light):
    dark = (photo("grace_hopper.jpg") * light + np.random.default_rng(0).normal(0, 1.2, (600, 512, 1))).clip(0, 255)
    assert dark.mean() < 64
    assert call(pose, dark.astype(np.uint8))["people"].to_pylist() == [1]


def test_world_landmarks_are_metres(pose):
    (person,) = call(pose, photo("grace_hopper.jpg"))["poses"][0].as_py()
    world = world_of(person)
    assert np.abs(world[[23, 24]].mean(axis=0)).max() < 0.02  # the middle of the hips
    assert 0.25 < np.linalg.norm(world[11] - world[12]) < 0.45  # an adult's shoulders are about .35 m apart
    assert world[0, 1] < world[11, 1] < world[23, 1]  # the nose above the shoulders above the hips: y points down


def test_a_low_confidence_finds_nobody_twice():
    model, portrait = "pose_landmarker_full_bundled", np.ascontiguousarray(photo("grace_hopper.jpg")[90:510, 76:])
    raw = BlazePose(model_file(model), count=8, min_detection=0.3, min_presence=0.5)
    assert len(raw(portrait)[0]) > 1  # MediaPipe itself does
    assert call(make(model, min_detection_confidence=0.3), portrait)["people"].to_pylist() == [1]


def test_names_of_landmarks_are_those_of_mediapipe_and_coco():
    from mediapipe.tasks.python.vision import PoseLandmark, PoseLandmarksConnections

    assert [PoseLandmark[name.upper()] for name in COCO_KEYPOINTS] == list(COCO_17)
    assert len(PoseLandmark) == LANDMARKS
    bones = {(bone.start, bone.end) for bone in PoseLandmarksConnections.POSE_LANDMARKS}
    assert set(BONES) == bones
    assert len(BONES) == len(bones)


@settings(max_examples=8, deadline=None)
@given(height=st.integers(1, 40), width=st.integers(1, 40), seed=st.integers(0, 9))
def test_tiny_pictures_are_answered(pose, height, width, seed):
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    (found,) = call(pose, noise)["people"].to_pylist()
    assert found == call(pose, noise)["people"][0].as_py() <= pose.config.max_people


# Settings, and what is drawn


def test_the_size_of_the_pixels_is_a_setting():
    assert Pose().inputs == ("frame_512", "time_s")
    assert Pose(Pose.Config(size=0)).inputs == ("frame", "time_s")
    assert pickle.loads(pickle.dumps(Pose(Pose.Config(size=256)))).inputs == ("frame_256", "time_s")


def test_the_drawing_is_the_skeleton_without_hidden_parts():
    row, pose = {"poses": poses([[standing(200)]]).to_pylist()[0], "people": 1}, Pose()
    whole = pose.draw(row)
    assert len(whole.lines) == len(BONES)
    assert whole.caption == "1 person"
    row["poses"][0]["landmarks"][27]["visibility"] = DRAWN / 2  # the left ankle: to knee, heel and toes
    assert len(pose.draw(row).lines) == len(BONES) - 3
    assert pose.draw({"poses": [], "people": 0}) is None
