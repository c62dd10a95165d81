"""Faces of pictures that lie on a side or upside down, in their place in the picture as it is."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from framekiln_stages.nets.faces.detections import FaceDetections
from framekiln_stages.nets.faces.yunet import OpenCvYuNet, YuNet, join, turn, turn_back
from tests.support.media.material import picture, weights
from tests.support.media.photos import photo
from tests.support.stages.faces.faces_factory import call, embedding, faces, found, make

TURNED = {0: 0, 1: 270, 2: 180, 3: 90}  # quarters counterclockwise, and degrees clockwise


@pytest.mark.parametrize("way", [{}, {"on_device": True}], ids=["host", "device"])
@pytest.mark.parametrize("quarters", TURNED)
def test_a_turned_portrait_has_its_face_in_its_place(quarters, way):
    image = photo("grace_hopper.jpg")
    turned = turn(image, quarters)
    ((upright,), (face,)) = found(make(**way) if way else faces(), image, turned)
    assert face["orientation"] == TURNED[quarters] and upright["orientation"] == 0
    assert embedding(upright) @ embedding(face) > 0.98
    marks = [np.array([[point["x"], point["y"]] for point in one["landmarks"]]) for one in (upright, face)]
    for _ in range(quarters):
        marks[0] = np.stack([marks[0][:, 1], 1 - marks[0][:, 0]], axis=1)
    assert np.abs(marks[0] - marks[1]).max() < 0.01
    box = np.array(list(face["box"].values()))
    assert (box[:2] < marks[1].min(axis=0)).all() and (marks[1].max(axis=0) < box[2:]).all()
    assert abs(upright["yaw"] - face["yaw"]) < 3 and abs(upright["pitch"] - face["pitch"]) < 3


@pytest.mark.parametrize(("name", "orientation"), [("obama_rot90.jpg", (90, 270)), ("astronaut_rot180.jpg", (180,))])
def test_reported_photos_have_one_face(name, orientation):
    (face,) = found(faces(), picture(f"reports/{name}"))[0]
    assert face["orientation"] in orientation


@pytest.mark.parametrize("quarters", [1, 2, 3])
@pytest.mark.parametrize("name", ["chelsea.png", "cat.bmp", "motorcycle_left.png", "rocket.jpg"])
def test_turned_things_are_no_faces(name, quarters):
    assert call(faces(), turn(picture(f"categories/{name}"), quarters))["face_count"].to_pylist() == [0]


def test_an_upright_picture_keeps_its_faces_alone():
    image = picture("faces/single/astronaut.png")  # turned, YuNet sees a second face with 0.87
    (face,) = found(faces(), image)[0]
    assert face["orientation"] == 0


def test_a_picture_with_a_sure_face_is_shown_to_the_network_once():
    network, seen = OpenCvYuNet(weights("yunet_n_dynamic.onnx"), 0.5), []

    def watched(images, sides):
        seen.extend(image.shape for image in images)
        return network(images, sides)

    detect = YuNet(watched, side=1280, max_faces=9, min_score=0.6, min_look=0.77)
    image = photo("grace_hopper.jpg")
    detect([image])
    assert seen == [image.shape] * 2, "both sizes"
    seen.clear()
    detect([photo("china.jpg")])
    assert seen[:2] == [photo("china.jpg").shape] * 2
    assert max(max(shape) for shape in seen[2:]) <= 320, "small looks cost little"


@pytest.mark.parametrize("name", ["biden/biden.jpg", "single/astronaut.png"])
def test_a_face_that_the_edge_halves_is_found(name):
    image = picture(f"faces/{name}")
    (face,) = found(faces(), image)[0]
    middle = int((face["box"]["x0"] + face["box"]["x1"]) / 2 * image.shape[1])
    assert call(faces(), image[:, middle:])["face_count"].to_pylist() == [1]


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_places_are_turned_back(quarters):
    image = np.zeros((60, 100, 3), np.uint8)
    image[10:20, 70:95] = 255
    ys, xs = np.nonzero(turn(image, quarters)[..., 0])
    box = np.array([[xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]], np.float32)
    seen = FaceDetections(box, box[:, [[0, 1]] * 5], np.ones(1, np.float32))
    back = turn_back(seen, quarters, image.shape)
    assert back.boxes.tolist() == [[70, 10, 95, 20]]
    assert (
        cv2.pointPolygonTest(
            np.array([[70, 10], [95, 10], [95, 20], [70, 20]], np.int32), back.points[0, 0].tolist(), False
        )
        >= 0
    )


def test_of_two_looks_at_one_head_the_first_counts():
    boxes = np.array([[0, 0, 10, 10], [1, 1, 9, 14], [30, 0, 40, 10]], np.float32)
    both = FaceDetections(boxes, np.zeros((3, 5, 2), np.float32), np.array([0.9, 0.8, 0.7], np.float32))
    joined = join(both.select(np.array([0])), both.select(np.array([1, 2])))
    assert joined.scores.tolist() == pytest.approx([0.9, 0.7])
