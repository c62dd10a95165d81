"""The second look: faces with low scores are kept, and things with high ones are not."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
import pytest

from framekiln_stages.nets.faces.detections import FaceDetections
from framekiln_stages.nets.faces.second_look import FACE, VIEW, least_scores
from framekiln_stages.nets.faces.yunet import OpenCvYuNet, YuNet
from tests.support.media.material import media, picture, weights
from tests.support.stages.faces.faces_factory import call, faces, make, scaled

DOG = "inpaint/overture-creations-5sI6fQgYIuo.png"


def first_scores(image):
    return YuNet(OpenCvYuNet(weights("yunet_n_dynamic.onnx"), 0.6), side=1280, max_faces=9)([image])[0].scores.tolist()


def upside_down(name, factor):
    return np.ascontiguousarray(scaled(picture(name), factor)[::-1])


@cache
def player(number):
    """A frame of a clip whose face has 24 px, seen from above."""
    capture = cv2.VideoCapture(str(media("vos/06_pingpong.mp4")))
    capture.set(cv2.CAP_PROP_POS_FRAMES, number)
    return cv2.cvtColor(capture.read()[1], cv2.COLOR_BGR2RGB)


@pytest.mark.parametrize(
    ("name", "factor", "flip"),
    [(DOG, 1.5, False), (DOG, 2, False), ("flow/rubberwhale/rubberwhale1.png", 1.5, True)],
)
def test_things_with_high_scores_are_no_faces(name, factor, flip):
    image = upside_down(name, factor) if flip else scaled(picture(name), factor)
    assert max(first_scores(image)) >= 0.83
    assert call(faces(), image)["face_count"].to_pylist() == [0]
    assert call(make(min_look=None, min_score=0.6), image)["face_count"].to_pylist() != [0]


@pytest.mark.parametrize(("number", "factor"), [(120, 0.32), (210, 0.3)])
def test_small_faces_with_low_scores_are_found(number, factor):
    small = scaled(player(number), factor)
    assert 0.6 <= max(first_scores(small)) < 0.85
    assert call(faces(), small)["face_count"].to_pylist() == [1]
    assert call(make(min_look=None), small)["face_count"].to_pylist() == [0], "by the score alone"


def test_a_face_keeps_its_look_at_the_edge_and_in_any_size():
    network = OpenCvYuNet(weights("yunet_n_dynamic.onnx"), 0.1)
    image = picture("faces/obama/obama.jpg")
    (face,) = YuNet(OpenCvYuNet(weights("yunet_n_dynamic.onnx"), 0.8), side=1280, max_faces=9)([image])
    box = face.boxes[0].astype(float)
    assert least_scores(network, [image], [box])[0] > 0.9
    left, top = np.floor(box[:2]).astype(int)
    cut = np.ascontiguousarray(image[top:, left:])  # the face is in the corner
    assert least_scores(network, [cut], [box - [left, top, left, top]])[0] > 0.8
    looks = least_scores(network, [scaled(image, f) for f in (0.2, 3)], [box * f for f in (0.2, 3)])
    assert looks.min() > 0.85
    assert least_scores(network, [image], [box + 3 * (box[2] - box[0])])[0] < 0.5, "another place"


def test_views_show_the_face_at_one_size_and_mirrored():
    seen = []

    def spot(images, sides):
        """Find the white square in each view."""
        found = []
        for image in images:
            ys, xs = np.nonzero(image[..., 0] > 128)
            box = np.array([[xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]], np.float32)
            found.append(FaceDetections(box, np.zeros((1, 5, 2), np.float32), np.array([0.7], np.float32)))
            seen.append((image.shape, sides[0], box[0].tolist()))
        return found

    image = np.zeros((300, 500, 3), np.uint8)
    image[:40, 10:106] = 255  # at the upper edge, 96 px wide
    assert least_scores(spot, [image], [np.array([10.0, 0, 106, 40])]).tolist() == pytest.approx([0.7])
    for shape, side, box in seen:
        assert shape == (VIEW, VIEW, 3) and side == VIEW and abs(box[2] - box[0] - FACE) <= 2
    plain, mirrored = (box for _, _, box in seen)
    assert [VIEW - mirrored[2], mirrored[1]] == pytest.approx(plain[:2], abs=2)
