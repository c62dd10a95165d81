"""Faces: people in real photos and clips are detected once, in their place, and distinguished."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest

from framekiln_stages.faces.alignment import SIDE, face_qualities
from framekiln_stages.nets.faces.yunet import OpenCvYuNet, YuNet
from tests.support.media.material import media, picture, weights
from tests.support.stages.faces.faces_factory import (
    PORTRAITS,
    SPEAKERS,
    call,
    embedding,
    faces,
    found,
    make,
    portraits,
    scaled,
    speakers,
)


def test_every_portrait_and_every_frame_of_a_speaker_has_one_face():
    assert call(faces(), *portraits().values())["face_count"].to_pylist() == [1] * len(portraits())
    assert speakers().keys() == SPEAKERS.keys()
    for name, clip in speakers().items():
        assert len(clip) == 5, name
        assert call(faces(), *clip)["face_count"].to_pylist() == [1] * 5, name


def test_similarity_distinguishes_people():
    people = [*PORTRAITS.values(), *(SPEAKERS[name] for name, clip in speakers().items() for _ in clip)]
    pictures = [*portraits().values(), *(image for clip in speakers().values() for image in clip)]
    vectors = np.stack([embedding(one) for (one,) in found(faces(), *pictures)])
    same, different = [], []
    for a, b in itertools.combinations(range(len(people)), 2):
        (same if people[a] == people[b] else different).append(float(vectors[a] @ vectors[b]))
    assert (len(same), len(different)) == (91, 575)
    assert min(same) > max(different), "the area under the ROC curve is 1"
    assert max(different) < 0.45  # the published threshold of this network: 0.40 to 0.45


def test_photos_without_people_have_no_faces():
    photos = [picture(f"categories/{path.name}") for path in sorted(media("categories").iterdir())]
    assert len(photos) == 20
    assert sum(call(make(size=0), *photos)["face_count"].to_pylist()) == 0


def test_boxes_and_landmarks_match_the_face():
    image = picture("faces/single/astronaut.png")
    (face,) = found(faces(), image)[0]
    box = np.array(list(face["box"].values())) * 512
    assert np.abs(box - [178, 65, 178 + 91, 65 + 111]).max() < 4  # by another program with the same network
    right_eye, left_eye, nose, right_mouth, left_mouth = ((point["x"], point["y"]) for point in face["landmarks"])
    assert right_eye[0] < nose[0] < left_eye[0]
    assert right_mouth[0] < nose[0] < left_mouth[0]
    assert max(right_eye[1], left_eye[1]) < nose[1] < min(right_mouth[1], left_mouth[1])
    assert face["box"]["x0"] < right_eye[0] < left_eye[0] < face["box"]["x1"]


@pytest.mark.parametrize("factor", [0.15, 0.5, 2, 5])
def test_a_face_of_any_size_is_detected_once_as_the_same_person(factor):
    image = picture("faces/obama/obama.jpg")[:700]  # the face is 226 px wide
    (face,), (other,) = found(faces(), image, scaled(image, factor))
    assert np.allclose(list(face["box"].values()), list(other["box"].values()), atol=0.03)
    assert embedding(face) @ embedding(other) > (0.9 if factor > 0.2 else 0.7)


def test_of_two_detections_of_a_face_that_of_more_pixels_is_kept():
    image = picture("faces/single/grace_hopper.bmp")  # a face 230 px high, with a score of 0.940 in the small pass
    show = OpenCvYuNet(weights("yunet_n_dynamic.onnx"), 0.85)
    (both,), (close,) = YuNet(show, side=1280, max_faces=500)([image]), show([image], [max(image.shape)])
    assert show([image], [320])[0].scores[0] > close.scores[0]
    assert (both.points == close.points).all()


def test_a_mirrored_face_has_the_opposite_yaw():
    image = portraits()["biden/biden.jpg"]
    (face,), (mirrored,) = found(faces(), image, np.ascontiguousarray(image[:, ::-1]))
    assert face["yaw"] > 10, "he looks to the right of the image"
    assert abs(face["yaw"] + mirrored["yaw"]) < 10
    assert abs(face["pitch"] - mirrored["pitch"]) < 15
    assert abs(face["box"]["x0"] + mirrored["box"]["x1"] - 1) < 0.02


# Limits and quality


def test_quality_decreases_with_blur_and_size():
    image = picture("faces/single/grace_hopper.bmp")
    pictures = [image, cv2.GaussianBlur(image, (0, 0), 4), scaled(image, 0.25)]
    sharp, blurred, small = (one["quality"] for (one,) in found(faces(), *pictures))
    assert 1 >= sharp > 0.8
    assert blurred < 0.5 * sharp
    assert small < 0.6 * sharp


def test_quality_by_its_formula():
    one, zero = np.ones(1), np.zeros(1, np.float32)
    assert face_qualities(one, zero, zero, 100 * one) == 0.5
    assert face_qualities(2 * one, zero, zero, 1e12 * one) == pytest.approx(0.5)
    assert face_qualities(one / 2, zero + 60, zero, 1e12 * one) == pytest.approx(0.5)
    assert face_qualities(one, zero, zero + 90, 1e12 * one) == pytest.approx(0, abs=1e-6)
    assert face_qualities(one, zero + 120, zero, 1e12 * one) == 0


def test_a_kept_crop_equals_the_embedded_face():
    stage = make(keep_crops=True, embedding="float32")
    for (face,) in found(stage, *portraits().values()):
        image = cv2.cvtColor(cv2.imdecode(np.frombuffer(face["crop"], np.uint8), 1), cv2.COLOR_BGR2RGB)
        assert image.shape == (SIDE, SIDE, 3)
        assert len(face["crop"]) < 10_000
        again = stage._recognize(image[None])[0]
        assert again @ embedding(face) > 0.98


def test_faces_are_limited_by_size_score_and_number(make_stage, ready, person):
    row = np.hstack([person, cv2.copyMakeBorder(scaled(person, 0.5), 0, 150, 0, 150, cv2.BORDER_CONSTANT)])
    assert call(ready, row)["face_count"].to_pylist() == [2]
    assert call(make_stage(min_side=40), row)["face_count"].to_pylist() == [1]
    (surest,) = found(make_stage(max_faces=1), row)[0]
    assert surest["score"] == max(face["score"] for face in found(ready, row)[0])
    assert call(make_stage(min_score=0.99), row)["face_count"].to_pylist() == [0]
